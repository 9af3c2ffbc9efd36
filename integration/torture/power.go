package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/powerloss"
)

// power cuts the power of nodes: of their stores, which the preloaded library watches, and of their
// replicated logs, which brokers watch that are built with the tag fault.
type power struct {
	nodes *nodes
	disks map[string]*powerloss.Disk
	logs  map[string]*powerloss.Log
	had   map[string]int // by node: copies of the data that had arrived when it was started
	cuts  int
	whole int // cuts that left a store as it was: a copy had arrived since the start
	store powerloss.Loss
	log   powerloss.Loss
}

func newPower(n *nodes, dir string) (*power, error) {
	p := &power{nodes: n, disks: map[string]*powerloss.Disk{}, logs: map[string]*powerloss.Log{}, had: map[string]int{}}
	for _, node := range n.cluster.Nodes {
		work := filepath.Join(dir, node.ID+"-power")
		if err := os.Mkdir(work, 0o750); err != nil {
			return nil, err
		}
		disk, err := powerloss.New(work, filepath.Clean(node.Data()))
		if err != nil {
			return nil, err
		}
		log := powerloss.NewLog(work, filepath.Join(node.ClusterPath(), "raft", "log"))
		disk.Scatter, log.Scatter = n.scatter, n.scatter
		node.SetEnv(append(disk.Env(), log.Env()...)...)
		p.disks[node.ID], p.logs[node.ID] = disk, log
	}
	return p, nil
}

// begin is called before each start of a node.
func (p *power) begin(node *harness.Node) error {
	p.had[node.ID] = p.nodes.watch.Arrivals(node.ID)
	if err := p.logs[node.ID].Begin(); err != nil {
		return err
	}
	return p.disks[node.ID].Begin()
}

// settle starts all nodes again: their stores are copies of that of the first, which the library has not
// seen being written.
func (p *power) settle() error {
	for _, node := range p.nodes.cluster.Nodes {
		if err := node.Stop(); err != nil {
			return err
		}
		if seen, err := p.logs[node.ID].Seen(); err != nil || !seen {
			return fmt.Errorf("the broker does not note what it syncs: build it with -tags fault (%w)", err)
		}
	}
	if err := p.nodes.up(); err != nil {
		return err
	}
	return p.nodes.serves()
}

// cutPower cuts the power of all nodes at once, or of one.
func (n *nodes) cutPower(node *harness.Node) (end func() error, err error) {
	all := n.cluster.Nodes
	if n.chance.IntN(4) == 0 {
		all = []*harness.Node{node}
	}
	if err := killAll(all); err != nil {
		return nil, err
	}
	pause(5 * time.Millisecond) // for the watch of the logs
	for _, node := range all {
		if err := n.power.cut(node); err != nil {
			return nil, err
		}
		if _, err := n.contents(node); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, i := range n.chance.Perm(len(all)) {
			if err := n.launch(all[i]); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (p *power) cut(node *harness.Node) error {
	p.cuts++
	loss, err := p.logs[node.ID].Cut(p.nodes.chance)
	if err != nil {
		return err
	}
	p.log.Add(loss)
	replaced, err := p.disks[node.ID].Replaced() // the process may end before it logs the arrival
	if err != nil {
		return err
	}
	if replaced || p.nodes.watch.Arrivals(node.ID) > p.had[node.ID] {
		p.whole++
		return nil
	}
	loss, err = p.disks[node.ID].Cut(p.nodes.chance)
	p.store.Add(loss)
	return err
}

func (p *power) report() {
	fmt.Printf("%d cuts took %d bytes of stores and tore %d files, took %d bytes of replicated logs and tore %d files; %d left a store as it was\n",
		p.cuts, p.store.Bytes, p.store.Torn, p.log.Bytes, p.log.Torn, p.whole)
}
