package cluster

import (
	"context"
	"time"

	"github.com/faisca/fila/internal/cluster/replica"
)

// A leader writes a format of entries or stores when every member has said that it reads it (see
// replica.Versions), those that do not vote too: each of them applies what is written. A node that does
// not read what the leader writes is not admitted.

// goRaise finds out what all members read, until that is what this program writes. It returns what stops
// it.
func (n *Node) goRaise(ctx context.Context, store *replica.Store) (stop func()) {
	n.setWrites(replica.First())
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(n.cfg.Pace.Ask)
		defer again.Stop()
		for written := replica.First(); written != replica.Newest(); {
			if next := n.readByAll(ctx); next != written && next.Reads(written) && n.raise(ctx, store, next) {
				written = next
			}
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// raise has a leader write newer formats, unless a node that does not read them was admitted meanwhile.
func (n *Node) raise(ctx context.Context, store *replica.Store, to replica.Versions) bool {
	n.mu.Lock()
	before := n.writes
	n.mu.Unlock()
	n.setWrites(to) // from here on, only nodes that read them are admitted
	if !n.readByAll(ctx).Reads(to) {
		n.setWrites(before)
		return false
	}
	store.Raise(to)
	n.cfg.Log.Info().Uint8("entries", to.Entry).Uint32("store", to.Format).
		Msg("all members read newer formats, which are written from now on; an older Fila cannot take the place of a member any more")
	return true
}

func (n *Node) setWrites(v replica.Versions) {
	n.mu.Lock()
	n.writes = v
	n.mu.Unlock()
}

// readByAll returns the newest formats that every member reads; the first ones, if one does not answer.
func (n *Node) readByAll(ctx context.Context) replica.Versions {
	all := replica.Newest()
	for _, s := range n.members() {
		if string(s.ID) == n.cfg.ID {
			continue
		}
		answer, err := n.askTermOf(ctx, string(s.Address))
		if err != nil {
			return replica.First()
		}
		all = all.Common(answer.reads)
	}
	return all
}
