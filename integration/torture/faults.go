package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/history"
)

// fault is something that happens to a node, or to all of them.
type fault struct {
	name string
	// begin does it and returns what ends it, which does not wait until the node serves again.
	begin func(node *harness.Node) (end func() error, err error)
	// after waits for more than that all nodes serve; nil: for nothing.
	after func(node *harness.Node) error
	// all says that it happens to all nodes, so nothing else can.
	all bool
	// leads says that it happens to the leader.
	leads bool
	// alive says that no process ends by it: when it is over, all nodes answer soon.
	alive bool
	// lasts is the least time that it lasts.
	lasts time.Duration
}

func (n *nodes) allFaults() []fault {
	return []fault{
		{name: byKill, begin: n.kill},
		{name: byStop, begin: n.stop, alive: true},
		{name: byWipe, begin: n.wipe, after: n.votesAgain},
		{name: byPartition, begin: n.partition, alive: true},
		{name: bySilence, begin: n.silence, alive: true, lasts: silenceTime},
		{name: byBridge, begin: n.bridge, alive: true},
		{name: byTransfer, begin: n.transfer, leads: true},
		{name: byFull, begin: n.full, alive: true},
		{name: byRow, begin: n.row, all: true},
		{name: byOld, begin: n.old, all: true},
		{name: byDown, begin: n.down, all: true},
		{name: byPower, begin: n.cutPower, all: true},
	}
}

// under is a fault that has begun.
type under struct {
	*fault

	node *harness.Node
	end  func() error
}

// harm implements target: one thing happens, or two to different nodes, for a while.
func (n *nodes) harm() error {
	w := window{at: n.shared.now()}
	first := &n.faults[n.chance.IntN(len(n.faults))]
	victim := n.victim(first.leads)
	begun, err := n.begin(nil, first, victim, &w)
	if err != nil {
		return err
	}
	alone := true
	if second := &n.faults[n.chance.IntN(len(n.faults))]; !first.all && !second.all && n.chance.IntN(together) == 0 && second.combines(first) {
		alone = false
		pause(time.Duration(n.chance.IntN(300)) * time.Millisecond)
		if begun, err = n.begin(begun, second, n.another(victim), &w); err != nil {
			return err
		}
	}
	hold := time.Duration(50+n.chance.IntN(2500)) * time.Millisecond
	for _, u := range begun {
		hold = max(hold, u.lasts+hold%time.Second)
	}
	n.gap.measure(n.shared, hold, alone && !first.all)
	n.chance.Shuffle(len(begun), func(i, j int) { begun[i], begun[j] = begun[j], begun[i] })
	for _, u := range begun {
		if err := u.end(); err != nil {
			return err
		}
	}
	if err := n.heals(begun); err != nil {
		return err
	}
	for _, u := range begun {
		if u.after != nil {
			if err := u.after(u.node); err != nil {
				return err
			}
		}
	}
	w.back = n.shared.now() + seenLate
	n.windows = append(n.windows, w)
	return n.verify()
}

// heals waits until all nodes serve after what had begun is over.
func (n *nodes) heals(begun []under) error {
	healed := time.Now()
	if err := n.serves(); err != nil {
		return err
	}
	took := time.Since(healed)
	if slices.ContainsFunc(begun, func(u under) bool { return !u.alive }) {
		n.started = max(n.started, took)
		return nil
	}
	n.healed = max(n.healed, took)
	if n.heal > 0 && took > n.heal {
		return brokenError{history.Breach{Rule: ruleHeals, What: fmt.Sprintf("after %v", took)}}
	}
	return nil
}

// begin begins a fault.
func (n *nodes) begin(before []under, f *fault, node *harness.Node, w *window) ([]under, error) {
	n.counts[f.name]++
	if f.name == byTransfer {
		w.transfer = node.ID
	}
	end, err := f.begin(node)
	return append(before, under{f, node, end}), err
}

// combines reports whether a fault may happen while another one is under way at another node. With two
// empty disks, data is lost.
func (f *fault) combines(with *fault) bool {
	return !f.leads && (f.name != byWipe || with.name != byWipe)
}

// victim chooses a node: often the leader.
func (n *nodes) victim(leads bool) *harness.Node {
	if leader := n.watch.Leader(); leads || n.chance.IntN(2) == 0 {
		for _, node := range n.cluster.Nodes {
			if node.ID == leader {
				return node
			}
		}
	}
	return n.cluster.Nodes[n.chance.IntN(len(n.cluster.Nodes))]
}

// kill ends a process, and sometimes once more when it has just begun.
func (n *nodes) kill(node *harness.Node) (end func() error, err error) {
	return func() error { return n.again(node, 4) }, node.Kill()
}

// again starts a process, and one of so many times kills it once more when it has just begun.
func (n *nodes) again(node *harness.Node, times int) error {
	if n.chance.IntN(times) == 0 {
		if err := n.launch(node); err != nil {
			return err
		}
		pause(time.Duration(n.chance.IntN(800)) * time.Millisecond)
		if err := node.Kill(); err != nil {
			return err
		}
	}
	return n.launch(node)
}

func (n *nodes) stop(node *harness.Node) (end func() error, err error) {
	return func() error { return node.Signal(syscall.SIGCONT) }, node.Signal(syscall.SIGSTOP)
}

// transfer tells the leader to end, which hands over before.
func (n *nodes) transfer(node *harness.Node) (end func() error, err error) {
	if err := node.Stop(); err != nil {
		return nil, brokenError{history.Breach{Rule: ruleEnds, What: fmt.Sprintf("node %s: %v", node.ID, err)}}
	}
	return func() error { return n.launch(node) }, nil
}

// down kills all nodes at once.
func (n *nodes) down(*harness.Node) (end func() error, err error) {
	if err := killAll(n.cluster.Nodes); err != nil {
		return nil, err
	}
	_, err = n.equal()
	return n.up, err
}

// killAll ends processes at the same time.
func killAll(nodes []*harness.Node) error {
	for _, node := range nodes {
		if err := node.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	for _, node := range nodes {
		if err := node.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// up starts all nodes in any order.
func (n *nodes) up() error {
	for _, i := range n.chance.Perm(len(n.cluster.Nodes)) {
		if err := n.launch(n.cluster.Nodes[i]); err != nil {
			return err
		}
		pause(time.Duration(n.chance.IntN(100)) * time.Millisecond)
	}
	return nil
}

// contents is what `fila check` says about the store of a node.
type contents struct {
	node    string
	Digest  string `json:"digest"`
	Replica struct {
		Entry int64 `json:"entry"`
	} `json:"replica"`
	Count    int64 `json:"problem_count"`
	Problems []struct {
		What string `json:"what"`
	} `json:"problems"`
}

// contents reads the store of a node whose process has ended.
func (n *nodes) contents(node *harness.Node) (c contents, err error) {
	out, code, err := harness.Run(context.Background(), nil, filepath.Clean(n.bin), "check", "--json", node.Data())
	if err != nil && code == 0 {
		return c, err
	}
	// What the command says besides goes to standard error, behind the report.
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&c); err != nil {
		return c, fmt.Errorf("fila check %s: %w: %s", node.Data(), err, out)
	}
	if c.Count > 0 {
		return c, brokenError{history.Breach{Rule: ruleEqual, What: fmt.Sprintf("the store of node %s: %s", node.ID, c.Problems[0].What)}}
	}
	c.node = node.ID
	return c, nil
}

// gap is the longest time in which no client got an answer, though a majority of the nodes was well.
type gap struct{ longest time.Duration }

// measure waits for a time and, if counts, notes how long no answer came.
func (g *gap) measure(s *shared, hold time.Duration, counts bool) {
	const every = 5 * time.Millisecond
	answers, since := s.answers.Load(), time.Now()
	for end := time.Now().Add(hold); time.Now().Before(end); pause(every) {
		if now := s.answers.Load(); now != answers {
			answers, since = now, time.Now()
		}
		if counts {
			g.longest = max(g.longest, time.Since(since))
		}
	}
}
