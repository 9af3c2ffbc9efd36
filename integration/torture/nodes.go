package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/history"
	"github.com/faisca/fila/internal/proc"
	"github.com/faisca/fila/internal/testkit/smalldisk"
)

// The promises of a cluster that no client can judge by its replies.
const (
	ruleServes history.Rule = "a cluster serves when a majority of its nodes is well"
	ruleHeals  history.Rule = "all nodes serve soon after the last fault is over"
	ruleIdle   history.Rule = "a node without clients is idle"
	ruleEnds   history.Rule = "a node that is told to end ends in order"
	ruleEqual  history.Rule = "the stores of nodes at the same entry are equal"
)

const (
	smallNodeBytes = 192 << 20 // file system of a node, if disks are to be full
	logBytes       = 8 << 20   // cluster.log_bytes: so little that the log is cut off again and again
	together       = 4         // one of so many times, two things happen at a time
)

// nodes are a cluster as a target.
type nodes struct {
	*session

	dir     string
	cluster *harness.Cluster
	watch   *harness.Watch
	faults  []fault
	voted   int    // how often the node that has lost its disk was given its vote before
	power   *power // nil: the power is never cut
	small   bool   // each node has a file system of its own, which may be filled
	windows []window
	counts  map[string]int // by name of a fault
	gap     gap
	healed  time.Duration     // the longest time until all nodes served again after faults that end no process
	started time.Duration     // the same after those that do
	copies  map[string]copied // by node, of disks that are brought back later

	verified int // comparisons of the stores of all nodes while they served
}

// window is a time in which something was done to the cluster.
type window struct {
	at, back time.Duration
	transfer string // the node that was told to hand over; "": none was
}

// newNodes returns a cluster with the faults that the options ask for.
func newNodes(s *session) (*nodes, error) {
	n := &nodes{session: s, counts: map[string]int{}, copies: map[string]copied{}}
	if s.sync != "always" {
		return nil, fmt.Errorf("-sync %s: nodes of a cluster sync always", s.sync)
	}
	known := n.allFaults()
	if s.by == "" {
		s.by = strings.Join([]string{byKill, byStop, byWipe, byPartition, bySilence, byBridge, byDown, byTransfer, byFull, byRow, byOld}, ",")
	}
	for name := range strings.SplitSeq(s.by, ",") {
		i := slices.IndexFunc(known, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-by %s: no fault of nodes; see -help", name)
		}
		n.faults = append(n.faults, known[i])
		n.small = n.small || name == byFull
	}
	if i := slices.IndexFunc(n.faults, func(f fault) bool { return f.name == byPower }); i >= 0 && len(n.faults) > 1 {
		return nil, errors.New("-by power goes alone")
	}
	return n, nil
}

// prepare implements target.
func (n *nodes) prepare(dir string) error {
	n.dir = dir
	var homes []string
	for i := range n.session.nodes {
		home := filepath.Join(dir, string(rune('a'+i)))
		if err := os.Mkdir(home, 0o750); err != nil {
			return err
		}
		homes = append(homes, home)
	}
	if n.small {
		if err := n.mount(homes); err != nil {
			return err
		}
	}
	args := []string{
		"--storage.lease_lag_ms", fmt.Sprint(n.leaseLag.Milliseconds()), "--storage.mode", "low_space",
		"--cluster.log_bytes", fmt.Sprint(cmp.Or(n.logBytes, logBytes)),
	}
	if n.election > 0 {
		args = append(args, "--cluster.election_ms", fmt.Sprint(n.election.Milliseconds()))
	}
	var err error
	n.cluster, err = harness.NewCluster(n.bin, homes, harness.Same(args...))
	if err != nil {
		return err
	}
	for _, node := range n.cluster.Nodes {
		n.shared.addrs = append(n.shared.addrs, node.Addr())
	}
	n.watch = harness.NewWatch(n.cluster.Nodes)
	if n.by == byPower {
		if n.power, err = newPower(n, dir); err != nil {
			return err
		}
	}
	for _, node := range n.cluster.Nodes {
		if err := n.launch(node); err != nil {
			return err
		}
	}
	if err := n.serves(); err != nil {
		return err
	}
	if err := n.queues(); err != nil {
		return err
	}
	if n.power == nil {
		return nil
	}
	return n.power.settle()
}

// mount gives each node a file system of its own. Where that is not allowed, no disk will be full.
func (n *nodes) mount(homes []string) error {
	for i, home := range homes {
		err := smalldisk.Mount(home, smallNodeBytes)
		if i == 0 && errors.Is(err, smalldisk.ErrMount) {
			fmt.Printf("%v: no disk will be full\n", err)
			n.small = false
			n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return f.name == byFull })
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close implements target.
func (n *nodes) close() {
	if n.cluster == nil {
		return
	}
	_ = n.cluster.Close() // its processes are killed
	if n.watch != nil {
		n.watch.Close()
	}
	for _, node := range n.cluster.Nodes {
		if n.small {
			n.keepLog(node)
			_ = smalldisk.Detach(node.Home) // what is in it is gone with it
		}
	}
}

// keepStores saves the stores of all nodes beside their file systems, whose contents may be discarded.
func (n *nodes) keepStores() {
	for _, node := range n.cluster.Nodes {
		_ = os.CopyFS(node.Home+".store", os.DirFS(node.Data())) // the run has ended
	}
}

// keepLog saves the log of a node beside its file system, which is about to be discarded.
func (n *nodes) keepLog(node *harness.Node) {
	if text, err := os.ReadFile(node.Log()); err == nil {
		_ = os.WriteFile(node.Home+".log", text, 0o600) // the run has ended
	}
}

// launch starts a process without waiting until it serves.
func (n *nodes) launch(node *harness.Node) error {
	if n.power != nil {
		if err := n.power.begin(node); err != nil {
			return err
		}
	}
	return node.Start()
}

// serves waits until all nodes serve, themselves or by way of the leader.
func (n *nodes) serves() error {
	for _, node := range n.cluster.Nodes {
		if err := n.ready(node); err != nil {
			return brokenError{history.Breach{Rule: ruleServes, What: fmt.Sprintf("node %s after %v: %v", node.ID, n.counts, err)}}
		}
	}
	return nil
}

// ready waits until a node serves, itself or by way of the leader.
func (n *nodes) ready(node *harness.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return node.Ready(ctx)
}

const (
	idleShare = 0.2 // of a processor, which is several times what a node without clients uses
	idleLook  = 2 * time.Second
	idleTime  = time.Minute // for what is done behind the clients, such as the compaction of a store
)

// idle waits until each node uses next to no processor, after all clients have left.
func (n *nodes) idle() error {
	for _, node := range n.cluster.Nodes {
		share := 1.0
		for end := time.Now().Add(idleTime); share > idleShare; {
			before, err := proc.UseOf(node.PID())
			if err != nil {
				return err
			}
			begun := time.Now()
			pause(idleLook)
			now, err := proc.UseOf(node.PID())
			if err != nil {
				return err
			}
			share = float64(now.CPU-before.CPU) / float64(time.Since(begun))
			if share > idleShare && time.Now().After(end) {
				return brokenError{history.Breach{Rule: ruleIdle, What: fmt.Sprintf("node %s uses %.0f %% of a processor without clients", node.ID, 100*share)}}
			}
		}
	}
	return nil
}

// finish implements target: it compares the stores, and says when leases may have been forgotten.
func (n *nodes) finish(h *history.History) error {
	if err := n.idle(); err != nil {
		return err
	}
	for end := time.Now().Add(patience); n.verified == 0 && time.Now().Before(end); pause(100 * time.Millisecond) {
		if err := n.verify(); err != nil {
			return err
		}
	}
	if err := n.compare(); err != nil {
		return err
	}
	h.Crashes = n.crashes()
	return nil
}

const (
	// A leadership is logged some moments after it began.
	seenLate = 200 * time.Millisecond
	compares = 20 // attempts to stop all nodes at the same entry
)

// crashes returns what clients may have noticed: each window, in which replies may be lost, and each
// change of the leader, which may forget leases. The old leader answers nothing after the election
// of the new one, and the new one nothing before it leads.
func (n *nodes) crashes() []history.Crash {
	var all []history.Crash
	for _, w := range n.windows {
		all = append(all, history.Crash{At: w.at, Back: w.back, Kept: true})
	}
	terms := n.watch.Leaderships()
	for i, l := range terms[1:] {
		seen := l.Seen.Sub(n.shared.start)
		c := history.Crash{At: seen - l.Took - seenLate, Back: seen + seenLate}
		c.Kept = !terms[i].Ceased && slices.ContainsFunc(n.windows, func(w window) bool {
			return w.transfer == terms[i].Node && w.at <= seen && seen <= w.back
		})
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b history.Crash) int { return int(a.At - b.At) })
	return merged(all)
}

// merged joins crashes that overlap.
func merged(all []history.Crash) (apart []history.Crash) {
	for _, c := range all {
		if len(apart) == 0 || apart[len(apart)-1].Back < c.At {
			apart = append(apart, c)
			continue
		}
		last := &apart[len(apart)-1]
		last.Back, last.Kept = max(last.Back, c.Back), last.Kept && c.Kept
	}
	return apart
}

// compare kills all nodes when they have nothing to do any more, and compares their stores.
func (n *nodes) compare() error {
	for range compares {
		n.sameEntry()
		if err := killAll(n.cluster.Nodes); err != nil {
			return err
		}
		same, err := n.equal()
		if err != nil || same {
			return err
		}
		for _, node := range n.cluster.Nodes {
			if err := n.launch(node); err != nil {
				return err
			}
		}
		if err := n.serves(); err != nil {
			return err
		}
	}
	return errors.New("the nodes did not come to the same entry")
}

// sameEntry waits until all nodes have applied the same entry, the newest of their logs. That they never do
// is for the comparison of the stores to say.
func (n *nodes) sameEntry() {
	ctx, cancel := context.WithTimeout(context.Background(), patience/compares)
	defer cancel()
	for same := 0; same < len(n.cluster.Nodes) && ctx.Err() == nil; pause(100 * time.Millisecond) {
		same = 0
		applied := uint64(0)
		for i, node := range n.cluster.Nodes {
			s, err := node.Status(ctx)
			if err != nil || s.Applied != s.Last || i > 0 && s.Applied != applied {
				break
			}
			applied = s.Applied
			same++
		}
	}
}

// equal compares the stores of nodes that have ended at the same entry, and reports whether all have.
func (n *nodes) equal() (all bool, err error) {
	at := map[int64]contents{}
	for _, node := range n.cluster.Nodes {
		c, err := n.contents(node)
		if err != nil {
			n.keepStores()
			return false, err
		}
		if other, known := at[c.Replica.Entry]; known && other.Digest != c.Digest {
			n.keepStores()
			return false, brokenError{history.Breach{Rule: ruleEqual, What: fmt.Sprintf("entry %d of node %s: %s, of %s: %s", c.Replica.Entry, node.ID, c.Digest, other.node, other.Digest)}}
		}
		at[c.Replica.Entry] = c
	}
	return len(at) == 1, nil
}

// verify has the nodes compare their stores while they serve.
func (n *nodes) verify() error {
	c := n.shared.client(0)
	defer c.redis.Close()
	found, err := c.redis.Do(context.Background(), "FILA.CLUSTER", "VERIFY").Slice()
	if err != nil {
		return nil // the leader has changed: the next comparison tells
	}
	equal := 0
	for _, node := range found {
		fields, _ := node.([]any)
		switch {
		case slices.Contains(fields, any("differs")):
			n.keepStores()
			return brokenError{history.Breach{Rule: ruleEqual, What: fmt.Sprint(found)}}
		case slices.Contains(fields, any("equal")):
			equal++
		}
	}
	if equal == len(n.cluster.Nodes) {
		n.verified++
	}
	return nil
}

// report implements target.
func (n *nodes) report(*history.Verdict) {
	var names []string
	for name, count := range n.counts {
		names = append(names, fmt.Sprintf("%d %s", count, name))
	}
	slices.Sort(names)
	terms := n.watch.Leaderships()
	fmt.Printf("%s; %d leaderships; the longest pause with a majority %v; all nodes served %v after the end of a fault, %v after the start of a process; the stores compared %d times\n",
		strings.Join(names, ", "), len(terms), n.gap.longest.Round(time.Millisecond), n.healed.Round(time.Millisecond), n.started.Round(time.Millisecond), n.verified)
	if n.power != nil {
		n.power.report()
	}
}
