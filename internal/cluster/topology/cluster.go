package topology

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/faisca/fila/resp"
)

// Slots is the number of slots.
const Slots = 16384

// Slot returns the slot of a key: that of the part between the first { and the next }, if it is not empty,
// else of all of it.
func Slot(key []byte) int {
	for i, b := range key {
		if b != '{' {
			continue
		}
		for j, e := range key[i+1:] {
			if e == '}' {
				if j > 0 {
					key = key[i+1 : i+1+j]
				}
				break
			}
		}
		break
	}
	return int(crc16(key) % Slots)
}

// crc16 is CRC-16/XMODEM, by which Redis Cluster places keys.
func crc16(b []byte) uint16 {
	const polynomial = 0x1021
	var crc uint16
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= polynomial
			}
		}
	}
	return crc
}

// Moved returns the text of the error that sends a client to the leader, without its code MOVED. Like
// Redis, it has no brackets around an address of IPv6.
func (n *Node) Moved(slot int) string { return strconv.Itoa(slot) + " " + n.pair() }

// pair is host and port in texts of Redis.
func (n *Node) pair() string { return n.Host + ":" + strconv.Itoa(n.Port) }

// nodes returns the master and the replicas.
func (v *View) nodes() []*Node {
	master := v.Master()
	if master == nil {
		return v.Replicas()
	}
	return append([]*Node{master}, v.Replicas()...)
}

// NodeBytes bounds what one node takes in a reply of this package, host included.
const NodeBytes = 2 << 10

// WriteSlots writes the reply of CLUSTER SLOTS.
func (v *View) WriteSlots(w *resp.Writer) {
	if v.Master() == nil {
		w.Array(0)
		return
	}
	shown := v.nodes()[:1]
	for _, n := range v.Replicas() {
		if n.Up { // Redis leaves out replicas that fail
			shown = append(shown, n)
		}
	}
	w.Array(1)
	w.Array(2 + len(shown))
	w.Int(0)
	w.Int(Slots - 1)
	for _, n := range shown {
		w.Array(4)
		w.BulkString(n.Host)
		w.Int(int64(n.Port))
		w.BulkString(v.NodeID(n.ID))
		w.Map(0)
	}
}

// WriteShards writes the reply of CLUSTER SHARDS. secure says that the ports are for TLS.
func (v *View) WriteShards(w *resp.Writer, secure bool) {
	port := "port"
	if secure {
		port = "tls-port"
	}
	w.Array(1)
	w.Map(2)
	w.BulkString("slots")
	if v.Master() == nil {
		w.Array(0)
	} else {
		w.Array(2)
		w.Int(0)
		w.Int(Slots - 1)
	}
	w.BulkString("nodes")
	shown := v.nodes()
	w.Array(len(shown))
	for _, n := range shown {
		w.Map(7)
		w.BulkString("id")
		w.BulkString(v.NodeID(n.ID))
		w.BulkString(port)
		w.Int(int64(n.Port))
		w.BulkString("ip")
		w.BulkString(n.Host)
		w.BulkString("endpoint")
		w.BulkString(n.Host)
		w.BulkString("role")
		w.BulkString(map[bool]string{true: "master", false: "replica"}[n.ID == v.Leader])
		w.BulkString("replication-offset")
		w.Int(int64(n.Applied))
		w.BulkString("health")
		w.BulkString(map[bool]string{true: "online", false: "fail"}[v.up(n)])
	}
}

// up reports whether a node does what its role is.
func (v *View) up(n *Node) bool { return n.Up && (n.ID != v.Leader || v.Led) }

// NodesText returns the reply of CLUSTER NODES.
func (v *View) NodesText() string {
	var b strings.Builder
	for _, n := range v.nodes() {
		flags, master, slots := "slave", "-", ""
		if n.ID == v.Leader {
			flags, slots = "master", " 0-"+strconv.Itoa(Slots-1)
		} else if v.Master() != nil {
			master = v.NodeID(v.Leader)
		}
		if n.ID == v.Self {
			flags = "myself," + flags
		}
		link := "connected"
		if !v.up(n) {
			flags += ",fail"
		}
		if !n.Up {
			link = "disconnected"
		}
		fmt.Fprintf(&b, "%s %s@%d %s %s 0 %d %d %s%s\n", v.NodeID(n.ID), n.pair(), n.Bus, flags, master, v.heard(n), v.Term, link, slots)
	}
	return b.String()
}

// heard returns when a node was last heard, in Unix milliseconds; 0 for the node itself, as in Redis.
func (v *View) heard(n *Node) int64 {
	if n.ID == v.Self {
		return 0
	}
	return v.Now.Add(-max(n.Heard, 0)).UnixMilli()
}

// InfoText returns the reply of CLUSTER INFO.
func (v *View) InfoText() string {
	state, assigned, ok := "fail", 0, 0
	if v.Master() != nil {
		assigned = Slots
		if v.Led {
			state, ok = "ok", Slots
		}
	}
	return fmt.Sprintf("cluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_slots_ok:%d\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:%d\r\n"+
		"cluster_known_nodes:%d\r\ncluster_size:1\r\ncluster_current_epoch:%d\r\ncluster_my_epoch:%d\r\n"+
		"cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
		state, assigned, ok, assigned-ok, len(v.Nodes), v.Term, v.Term)
}
