package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/testkit"
)

// gatedLog is a log in memory whose writes wait for a gate, and fail as it says.
type gatedLog struct {
	*raft.InmemStore

	gate chan error // what a write of a batch waits for and returns

	mu      sync.Mutex
	written []uint64
}

func (g *gatedLog) StoreLogs(entries []*raft.Log) error {
	if entries[0].Type == raft.LogCommand {
		if err := <-g.gate; err != nil {
			return err
		}
	}
	g.mu.Lock()
	for _, e := range entries {
		g.written = append(g.written, e.Index)
	}
	g.mu.Unlock()
	return g.InmemStore.StoreLogs(entries)
}

func (g *gatedLog) order() []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.written)
}

// newGatedLog returns the log of a leader, and what failed was called with.
func newGatedLog(t *testing.T) (l *asyncLog, disk *gatedLog, leads *atomic.Bool, failed chan error) {
	t.Helper()
	disk, leads, failed = &gatedLog{InmemStore: raft.NewInmemStore(), gate: make(chan error)}, &atomic.Bool{}, make(chan error, 10)
	leads.Store(true)
	l, err := newAsyncLog(disk, time.Millisecond, leads.Load, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(disk.gate)
		l.close()
	})
	return l, disk, leads, failed
}

// moments is how long something is watched that must not come about.
const moments = 10 * time.Millisecond

// stillWaits fails if something is done within a time.
func stillWaits(t *testing.T, what string, within time.Duration, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s did not wait: %v", what, err)
	case <-time.After(within):
	}
}

func returned(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func TestALeadersBatchIsReadableBeforeItIsOnDiskAndAwaitWaits(t *testing.T) {
	l, disk, _, _ := newGatedLog(t)
	for i := uint64(1); i <= 3; i++ {
		if err := l.StoreLog(logEntry(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := uint64(1); i <= 3; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil || string(e.Data) != string(logEntry(i).Data) {
			t.Fatalf("entry %d is %q, %v", i, e.Data, err)
		}
	}
	if last, err := l.LastIndex(); err != nil || last != 3 || l.onDisk.Load() != 0 {
		t.Fatalf("the last entry is %d, %v, that on disk %d", last, err, l.onDisk.Load())
	}
	second := returned(func() error { return l.await(2) })
	stillWaits(t, "await", moments, second)
	disk.gate <- nil // the first write, of the entries that were there when it began
	if l.await(1) != nil {
		t.Fatal("the first entry is not on disk")
	}
	if l.onDisk.Load() < 2 {
		stillWaits(t, "await", moments, second)
		disk.gate <- nil
	}
	if err := <-second; err != nil || l.onDisk.Load() < 2 {
		t.Fatalf("%v with %d on disk", err, l.onDisk.Load())
	}
}

// What this node confirms as a follower, or as a later leader, must stand on a log that is on disk.
func TestWhatIsWrittenAtOnceIsWrittenBehindWhatIsPending(t *testing.T) {
	for name, last := range map[string]*raft.Log{
		"the first entry of a leadership": {Index: 3, Term: 2, Type: raft.LogNoop},
		"members":                         {Index: 3, Term: 2, Type: raft.LogConfiguration},
		"a follower's":                    {Index: 3, Term: 2, Type: raft.LogCommand},
	} {
		t.Run(name, func(t *testing.T) {
			l, disk, leads, _ := newGatedLog(t)
			if err := l.StoreLogs([]*raft.Log{logEntry(1), logEntry(2)}); err != nil {
				t.Fatal(err)
			}
			leads.Store(last.Type != raft.LogCommand)
			stored := returned(func() error { return l.StoreLog(last) })
			stillWaits(t, "StoreLogs", moments, stored)
			disk.gate <- nil
			if last.Type == raft.LogCommand {
				stillWaits(t, "StoreLogs", moments, stored)
				disk.gate <- nil
			}
			if err := <-stored; err != nil {
				t.Fatal(err)
			}
			if got := disk.order(); !slices.Equal(got, []uint64{1, 2, 3}) || l.onDisk.Load() != 3 {
				t.Errorf("written were %d, on disk is %d", got, l.onDisk.Load())
			}
		})
	}
}

func TestEntriesThatCannotBeWrittenStayAndAreTriedAgain(t *testing.T) {
	l, disk, leads, failed := newGatedLog(t)
	if err := l.StoreLog(logEntry(1)); err != nil {
		t.Fatal(err)
	}
	waits := returned(func() error { return l.await(1) })
	for range 3 {
		disk.gate <- syscall.ENOSPC
	}
	if err := <-waits; !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, syscall.ENOSPC) || len(failed) > 0 {
		t.Fatalf("failed was called with %v, and %d times more", err, len(failed))
	}
	for _, leading := range []bool{true, false} {
		leads.Store(leading)
		if err := l.StoreLog(logEntry(2)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("leading %t: an entry behind it: %v", leading, err)
		}
	}
	if err := l.DeleteRange(1, 1); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("it is removed: %v", err)
	}
	var e raft.Log
	if err := l.GetLog(1, &e); err != nil || e.Index != 1 {
		t.Errorf("it is %+v, %v", e, err)
	}
	disk.gate <- nil
	testkit.Eventually(t, "space", func() bool { return l.onDisk.Load() == 1 })
	if err := l.await(1); err != nil {
		t.Error(err)
	}
	leads.Store(true)
	if err := l.StoreLog(logEntry(2)); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfALogIsRemovedAfterItIsOnDisk(t *testing.T) {
	l, disk, _, _ := newGatedLog(t)
	if err := l.StoreLogs([]*raft.Log{logEntry(1), logEntry(2), logEntry(3)}); err != nil {
		t.Fatal(err)
	}
	removed := returned(func() error { return l.DeleteRange(2, 3) })
	stillWaits(t, "DeleteRange", moments, removed)
	disk.gate <- nil
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if last, err := l.LastIndex(); err != nil || last != 1 || l.onDisk.Load() != 1 {
		t.Errorf("the last entry is %d, %v, that on disk %d", last, err, l.onDisk.Load())
	}
}

func TestAWaitEndsWithTheLog(t *testing.T) {
	l, disk, _, _ := newGatedLog(t)
	if err := l.StoreLog(logEntry(1)); err != nil {
		t.Fatal(err)
	}
	waits := returned(func() error { return l.await(1) })
	closed := returned(func() error { l.close(); return nil })
	if err := <-waits; !errors.Is(err, raft.ErrRaftShutdown) {
		t.Error(err)
	}
	select {
	case disk.gate <- nil: // a write had begun
		<-closed
	case <-closed:
	}
}

// onDemand starts all nodes and returns a channel for keys that the leader is to commit, one at a time, and one
// for the result of each. A first commit has succeeded.
func (c *trial) onDemand() (commits chan<- string, results <-chan error) {
	c.t.Helper()
	keys, errs := make(chan string), make(chan error, 1)
	c.work = func(ctx context.Context, _ string, l *Leadership) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-l.Yield:
				return nil
			case key := <-keys:
				errs <- put(l, key)
			}
		}
	}
	c.startAll()
	c.formed()
	testkit.Eventually(c.t, "a first commit", func() bool {
		keys <- "before"
		return <-errs == nil
	})
	return keys, errs
}

// inForce reports whether a node still leads in the term of its earlier status.
func (c *trial) inForce(then *Status) bool {
	now := c.nodes[then.Node].node.Status()
	return now.State == stateName(raft.Leader) && now.Term == then.Term
}

// All nodes have a batch in their logs, and the others have it on disk: a majority. But the leader
// has not, so it must neither confirm nor apply it, nor tell the others to.
func TestABatchTakesEffectOnlyWhenItIsOnTheLeadersDisk(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.election = time.Second
	commits, results := c.onDemand()
	key := ""
	var wrong error
	testkit.Eventually(t, "one leader all the time", func() (valid bool) {
		key += "held "
		valid, wrong = c.holdUp(key, commits, results)
		return valid
	})
	if wrong != nil {
		t.Fatal(wrong)
	}
	c.everywhere(key)
}

// holdUp commits a batch that is held up for a while on the way to the leader's disk, and returns what is wrong with that.
// It is not valid if another node was elected meanwhile, as on a machine with little time: that one may commit the batch.
func (c *trial) holdUp(key string, commits chan<- string, results <-chan error) (valid bool, wrong error) {
	c.t.Helper()
	leader := c.nodes[c.leader()]
	then := leader.node.Status()
	release := leader.files.hold()
	defer release()
	commits <- key
	testkit.Eventually(c.t, "the entry on all nodes, or another leader", func() bool {
		last := leader.node.Status().Last
		for _, r := range c.nodes {
			if s := r.node.Status(); s.Last != last || r.node.async.onDisk.Load() != last && r != leader {
				return !c.inForce(&then)
			}
		}
		return true
	})
	// Other nodes learn of a commit at the latest with an empty request, after Election / 4.
	select {
	case err := <-results:
		return c.inForce(&then), fmt.Errorf("a commit did not wait: %w", err)
	case <-time.After(c.election):
	}
	for id, r := range c.nodes {
		if has(r.store, key) {
			wrong = errors.Join(wrong, fmt.Errorf("%s has applied it", id))
		}
	}
	release()
	wrong = errors.Join(wrong, <-results)
	return c.inForce(&then), wrong
}

// A leader whose disk fills up while a batch is on its way to the log steps down, knows who leads after it
// although its Raft waits for the disk, and has what the others have when there is space again.
func TestALeaderWhoseLogIsFullStepsDownAndCatchesUp(t *testing.T) {
	for after := range 4 {
		c := newTrial(t, "a", "b", "c")
		var done atomic.Int64
		var quiet atomic.Bool
		c.work = writer(1000, &done, &quiet)
		c.startAll()
		c.formed()
		progress := func() {
			t.Helper()
			before := done.Load()
			testkit.Eventually(t, "progress", func() bool { return done.Load() > before+20 })
		}
		progress()
		full := c.leader()
		c.nodes[full].files.fail(syscall.ENOSPC, after)
		testkit.Eventually(t, "another leader", func() bool { l := c.leads(); return l != "" && l != full })
		progress()
		testkit.Eventually(t, "it knows who leads now", func() bool {
			m, ok := c.nodes[full].node.LeaderMember()
			return ok && m.Node != full && m.Node == c.newest()
		})
		c.nodes[full].files.fail(nil, 0)
		testkit.Eventually(t, "space", func() bool { return c.nodes[full].node.Status().Writable })
		progress()
		quiet.Store(true)
		c.equal()
	}
}

// Raft counts an entry as applied that waits for the leader's disk. A snapshot that included it would take it
// from the log of a node whose store has yet to get it.
func TestNoSnapshotIsTakenWhileAnEntryWaitsForTheDisk(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	commits, results := c.onDemand()
	var full string
	var release func()
	testkit.Eventually(t, "an entry of a leader that a majority has", func() bool {
		full = c.leader()
		then := c.nodes[full].node.Status()
		release = c.nodes[full].files.hold()
		commits <- "waits"
		testkit.Eventually(t, "a majority has the entry", func() bool {
			return c.nodes[full].node.raft.CommitIndex() > then.Last || !c.inForce(&then)
		})
		if c.inForce(&then) {
			return true
		}
		release() // another node was elected meanwhile
		<-results
		return false
	})
	r := c.nodes[full]
	r.files.fail(syscall.ENOSPC, 0)
	release()
	if err := <-results; err == nil {
		t.Fatal("a batch was confirmed that is not on disk")
	}
	testkit.Eventually(t, "the entry waits", r.node.fsm.refuses.Load)
	if err := r.node.raft.Snapshot().Error(); err == nil {
		t.Error("a snapshot was taken")
	}
	c.kill(full)
	r.files.fail(nil, 0)
	c.start(full)
	c.everywhere("waits")
	c.equal()
}
