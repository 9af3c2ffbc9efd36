package main

import (
	"slices"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// silenceTime is longer than a link without a sign of life is kept (internal/cluster/relay, linkSilence).
const silenceTime = 16 * time.Second

// ways are the cuts of what a node sends and of what it gets.
func ways() [][2]harness.Cut {
	return [][2]harness.Cut{
		{harness.Closed, harness.Closed}, {harness.Stalled, harness.Stalled}, {harness.Closed, harness.Whole},
		{harness.Whole, harness.Closed}, {harness.Stalled, harness.Whole}, {harness.Whole, harness.Stalled},
	}
}

// partition cuts a node off from all others, in one of many ways.
func (n *nodes) partition(node *harness.Node) (end func() error, err error) {
	w := ways()[n.chance.IntN(len(ways()))]
	n.cluster.Network.Isolate(node.ID, w[0], w[1])
	return n.whole(node), nil
}

// silence drops what a node sends, or gets, or both. Both ends hear nothing until their
// links end.
func (n *nodes) silence(node *harness.Node) (end func() error, err error) {
	w := [][2]harness.Cut{{harness.Stalled, harness.Stalled}, {harness.Stalled, harness.Whole}, {harness.Whole, harness.Stalled}}[n.chance.IntN(3)]
	n.cluster.Network.Isolate(node.ID, w[0], w[1])
	return n.whole(node), nil
}

// bridge cuts the way between two nodes, which both reach all others.
func (n *nodes) bridge(node *harness.Node) (end func() error, err error) {
	w := ways()[n.chance.IntN(len(ways()))]
	n.cluster.Network.Sever(node.ID, n.another(node).ID, w[0], w[1])
	return n.whole(node), nil
}

// whole returns what connects a node with all others again.
func (n *nodes) whole(node *harness.Node) func() error {
	return func() error {
		n.cluster.Network.Isolate(node.ID, harness.Whole, harness.Whole)
		return nil
	}
}

// another returns one of the other nodes.
func (n *nodes) another(than ...*harness.Node) *harness.Node {
	for {
		node := n.cluster.Nodes[n.chance.IntN(len(n.cluster.Nodes))]
		if !slices.Contains(than, node) {
			return node
		}
	}
}
