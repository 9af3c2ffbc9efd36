package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/history"
	"github.com/faisca/fila/internal/testkit/smalldisk"
)

const (
	ruleMajority history.Rule = "a majority of the voters that has all data serves"
	ruleOldDisk  history.Rule = "a node with an older copy of its disk does not join"
)

const (
	rowTime  = 5 * time.Second  // for a node with an empty disk to get its vote while another one is stopped
	heardOf  = 10 * time.Second // until others have heard of a process, and keep it
	refusing = time.Minute      // for a node to learn that its disk is old
)

// wipe replaces the disk of a node. Often it is killed again while it joins.
func (n *nodes) wipe(node *harness.Node) (end func() error, err error) {
	n.voted = n.watch.Votes(node.ID)
	if err := node.Kill(); err != nil {
		return nil, err
	}
	return func() error { return n.again(node, 2) }, node.Wipe()
}

// votesAgain waits until a node that has lost its disk has a copy of the data and votes: then another one
// may lose its disk.
func (n *nodes) votesAgain(node *harness.Node) error {
	if err := until(patience, func() bool { return n.watch.Votes(node.ID) > n.voted }); err != nil {
		return brokenError{history.Breach{Rule: ruleServes, What: fmt.Sprintf("node %s has lost its disk and does not vote again %v", node.ID, err)}}
	}
	return nil
}

// row loses disks one after the other: that of a node, and that of the leader, or the leader alone, as soon as
// the first one has its vote back. A third node is stopped in between, so that it may lack the last entries,
// among them that vote. The nodes that are left have all data, and are a majority.
func (n *nodes) row(*harness.Node) (end func() error, err error) {
	leader := n.victim(true)
	first := n.another(leader)
	third := n.another(leader, first)
	n.voted = n.watch.Votes(first.ID)
	if err := first.Kill(); err != nil {
		return nil, err
	}
	if err := first.Wipe(); err != nil {
		return nil, err
	}
	if err := n.launch(first); err != nil {
		return nil, err
	}
	votes := func() bool { return n.watch.Votes(first.ID) > n.voted }
	arrived := n.watch.Arrivals(first.ID)
	_ = until(rowTime, func() bool { return votes() || n.watch.Arrivals(first.ID) > arrived })
	pause(time.Duration(n.chance.IntN(1000)) * time.Millisecond)
	if err := third.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	resume := func() error { return third.Signal(syscall.SIGCONT) }
	if voted := until(rowTime, votes) == nil; !voted {
		n.counts["row without a vote"]++
		return func() error { return after(resume, func() error { return n.votesAgain(first) }) }, nil
	}
	if err := leader.Kill(); err != nil {
		return nil, err
	}
	lost := n.chance.IntN(2) == 0
	if lost {
		if err := leader.Wipe(); err != nil {
			return nil, err
		}
	}
	if err := resume(); err != nil {
		return nil, err
	}
	for _, node := range n.cluster.Others(leader.ID) {
		if err := n.ready(node); err != nil {
			return nil, brokenError{history.Breach{Rule: ruleMajority, What: fmt.Sprintf("node %s: leader %s is down, %s was wiped and votes again, %s was stopped meanwhile: %v", node.ID, leader.ID, first.ID, third.ID, err)}}
		}
	}
	again := func() error { return n.launch(leader) }
	if !lost {
		return again, nil
	}
	n.voted = n.watch.Votes(leader.ID)
	return func() error { return after(again, func() error { return n.votesAgain(leader) }) }, nil
}

// after executes one thing and then another.
func after(first, then func() error) error {
	if err := first(); err != nil {
		return err
	}
	return then()
}

// copied is a copy of the disk of a node.
type copied struct {
	dir string
	at  time.Time // when the node was started again on its own disk
}

// old brings back an old copy of the disk of a node, often while another one is down. The node has to refuse it,
// and joins again with an empty one. Without a copy that others can know to be old it makes one.
func (n *nodes) old(node *harness.Node) (end func() error, err error) {
	c, known := n.copies[node.ID]
	if !known {
		return n.copyDisk(node)
	}
	if time.Since(c.at) < heardOf {
		pause(heardOf - time.Since(c.at))
	}
	if err := n.serves(); err != nil {
		return nil, err
	}
	var down *harness.Node
	if n.chance.IntN(2) == 0 {
		down = n.another(node)
	}
	if err := node.Kill(); err != nil {
		return nil, err
	}
	if down != nil {
		if err := down.Kill(); err != nil {
			return nil, err
		}
	}
	if err := node.BringBack(c.dir); err != nil {
		return nil, err
	}
	delete(n.copies, node.ID)
	if err := os.RemoveAll(c.dir); err != nil {
		return nil, err
	}
	if err := n.launch(node); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), refusing)
	defer cancel()
	if code, err := node.Wait(ctx); err != nil || code == 0 {
		return nil, brokenError{history.Breach{Rule: ruleOldDisk, What: fmt.Sprintf("node %s: exit code %d, %v", node.ID, code, err)}}
	}
	n.counts["old disk refused"]++
	n.voted = n.watch.Votes(node.ID)
	if err := node.Wipe(); err != nil {
		return nil, err
	}
	return func() error {
		if down != nil {
			if err := n.launch(down); err != nil {
				return err
			}
		}
		return after(func() error { return n.launch(node) }, func() error { return n.votesAgain(node) })
	}, nil
}

// copyDisk kills a node, copies its disk and starts it again.
func (n *nodes) copyDisk(node *harness.Node) (end func() error, err error) {
	if err := node.Kill(); err != nil {
		return nil, err
	}
	dir := filepath.Join(n.dir, "old-"+node.ID)
	if err := node.CopyDisk(dir); err != nil {
		return nil, err
	}
	return func() error {
		n.copies[node.ID] = copied{dir, time.Now()}
		return n.launch(node)
	}, nil
}

func (n *nodes) full(node *harness.Node) (end func() error, err error) {
	return func() error { return smalldisk.Empty(node.Home) }, smalldisk.Fill(node.Home)
}
