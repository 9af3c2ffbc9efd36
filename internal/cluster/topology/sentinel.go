package topology

import (
	"fmt"
	"strconv"

	"github.com/faisca/fila/resp"
)

// pairs are fields and values, alternating. Sentinel answers texts only, numbers too.
type pairs []string

func (p pairs) write(w *resp.Writer) {
	w.Map(len(p) / 2)
	for _, text := range p {
		w.BulkString(text)
	}
}

func decimal[T int | int64 | uint64](n T) string { return fmt.Sprint(n) }

// SwitchMaster is the channel on which clients of Sentinel are notified of another master.
const SwitchMaster = "+switch-master"

// Switched returns the payload of SwitchMaster.
func Switched(name string, from, to *Node) string {
	return name + " " + from.Host + " " + strconv.Itoa(from.Port) + " " + to.Host + " " + strconv.Itoa(to.Port)
}

// WriteAddr writes the reply of SENTINEL GET-MASTER-ADDR-BY-NAME.
func (v *View) WriteAddr(w *resp.Writer, name string) {
	master := v.Master()
	if name != v.Name || master == nil {
		w.NullArray()
		return
	}
	w.Array(2)
	w.BulkString(master.Host)
	w.BulkString(strconv.Itoa(master.Port))
}

// WriteMasters writes the reply of SENTINEL MASTERS.
func (v *View) WriteMasters(w *resp.Writer) {
	if v.Master() == nil {
		w.Array(0)
		return
	}
	w.Array(1)
	v.WriteMaster(w)
}

// WriteMaster writes the fields of the master. There must be one.
func (v *View) WriteMaster(w *resp.Writer) {
	n := v.Master()
	flags := "master"
	if !v.up(n) {
		flags = "s_down,o_down,master"
	}
	p := v.common(n, v.Name, n.Port, v.NodeID(n.ID), flags)
	p = append(p, v.reported("master")...)
	append(p,
		"config-epoch", decimal(v.Term),
		"num-slaves", decimal(len(v.Replicas())),
		"num-other-sentinels", decimal(len(v.others())),
		"quorum", decimal(v.majority()),
		"failover-timeout", decimal(2*v.Down.Milliseconds()),
		"parallel-syncs", "1",
	).write(w)
}

// common are the fields that every node has.
func (v *View) common(n *Node, name string, port int, id, flags string) pairs {
	heard := decimal(max(n.Heard, 0).Milliseconds())
	p := pairs{
		"name", name,
		"ip", n.Host,
		"port", strconv.Itoa(port),
		"runid", id,
		"flags", flags,
		"link-pending-commands", "0",
		"link-refcount", "1",
		"last-ping-sent", "0",
		"last-ok-ping-reply", heard,
		"last-ping-reply", heard,
	}
	if !n.Up {
		p = append(p, "s-down-time", heard)
	}
	return append(p, "down-after-milliseconds", decimal(v.Down.Milliseconds()))
}

// reported are the fields about what a node says of itself.
func (v *View) reported(role string) pairs {
	return pairs{"info-refresh", "0", "role-reported", role, "role-reported-time", "0"}
}

// WriteReplicas writes the reply of SENTINEL REPLICAS.
func (v *View) WriteReplicas(w *resp.Writer) {
	all, master := v.Replicas(), v.Master()
	w.Array(len(all))
	for _, n := range all {
		flags, link := "slave", "ok"
		if !n.Up {
			flags = "s_down,slave,disconnected"
		}
		if !v.Led {
			link = "err"
		}
		p := v.common(n, n.pair(), n.Port, v.NodeID(n.ID), flags)
		p = append(p, v.reported("slave")...)
		append(p,
			"master-link-down-time", "0",
			"master-link-status", link,
			"master-host", master.Host,
			"master-port", strconv.Itoa(master.Port),
			"slave-priority", "100",
			"slave-repl-offset", decimal(n.Applied),
			"replica-announced", "1",
		).write(w)
	}
}

// others returns the other nodes with a port for clients of Sentinel.
func (v *View) others() []*Node {
	var all []*Node
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.ID != v.Self && n.Host != "" && n.Watch != 0 {
			all = append(all, n)
		}
	}
	return all
}

// WriteSentinels writes the reply of SENTINEL SENTINELS: the other ones.
func (v *View) WriteSentinels(w *resp.Writer) {
	all := v.others()
	w.Array(len(all))
	for _, n := range all {
		flags, id := "sentinel", v.SentinelID(n.ID)
		if !n.Up {
			flags = "s_down,sentinel,disconnected"
		}
		p := v.common(n, id, n.Watch, id, flags)
		append(p,
			"last-hello-message", decimal(max(n.Heard, 0).Milliseconds()),
			"voted-leader", "?",
			"voted-leader-epoch", "0",
		).write(w)
	}
}

// SentinelID returns the id of a node in replies of SENTINEL.
func (v *View) SentinelID(node string) string { return v.runID("sentinel", node) }

// voters returns how many nodes vote, and how many of these are up.
func (v *View) voters() (all, up int) {
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.Voter {
			all++
			if n.Up {
				up++
			}
		}
	}
	return all, up
}

// majority returns how many nodes it takes to elect a leader.
func (v *View) majority() int {
	all, _ := v.voters()
	return all/2 + 1
}

// Quorum returns the reply of SENTINEL CKQUORUM, which is an error with the code NOQUORUM if ok is false.
func (v *View) Quorum() (text string, ok bool) {
	_, n := v.voters()
	if n < v.majority() {
		return decimal(n) + " usable Sentinels. Not enough available Sentinels to reach the majority and authorize a failover", false
	}
	return decimal(n) + " usable Sentinels. Quorum and failover authorization can be reached", true
}

// SentinelInfo returns the value of master0 in the section sentinel of INFO; "" without a master.
func (v *View) SentinelInfo() string {
	n := v.Master()
	if n == nil {
		return ""
	}
	status := "ok"
	if !v.up(n) {
		status = "odown"
	}
	return fmt.Sprintf("name=%s,status=%s,address=%s,slaves=%d,sentinels=%d", v.Name, status, n.pair(), len(v.Replicas()), 1+len(v.others()))
}
