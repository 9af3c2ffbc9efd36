package cluster

import "time"

// wait is a call of await.
type wait struct {
	applied uint64
	nodes   int
	done    func(nodes int)
	timer   *time.Timer // nil: none
}

// having returns how many other nodes have the entries up to one. The caller holds mu.
func (r *roster) having(applied uint64) (n int) {
	for _, o := range r.others {
		if o.status != nil && o.status.Applied >= applied {
			n++
		}
	}
	return n
}

// await is Node.Await, for the entries up to applied.
func (r *roster) await(applied uint64, nodes int, timeout time.Duration, done func(int)) (end func()) {
	w := &wait{applied: applied, nodes: nodes, done: done}
	r.mu.Lock()
	have := r.having(applied)
	if have < nodes {
		r.waits[w] = struct{}{}
		if timeout > 0 {
			w.timer = time.AfterFunc(timeout, func() { r.finish(w) })
		}
	}
	r.mu.Unlock()
	if have >= nodes {
		done(have)
		return func() {}
	}
	r.wakeAll()
	return func() { r.finish(w) }
}

// finish ends a wait, unless it has ended.
func (r *roster) finish(w *wait) {
	r.mu.Lock()
	_, open := r.waits[w]
	delete(r.waits, w)
	have := r.having(w.applied)
	if w.timer != nil {
		w.timer.Stop()
	}
	r.mu.Unlock()
	if open {
		w.done(have)
	}
}

// Await calls done with the number of other nodes that have in their stores everything that this
// node has when it is called: as soon as these are so many, after the timeout (0: none), or when end is
// called. done is called once, from any goroutine. Await does not wait.
func (n *Node) Await(nodes int, timeout time.Duration, done func(nodes int)) (end func()) {
	return n.roster.await(n.applied(), nodes, timeout, done)
}
