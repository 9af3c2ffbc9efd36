package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// openGroup opens a group whose message goes to the queue "out".
func (w *world) openGroup(name string, change func(*OpenGroup)) bool {
	w.t.Helper()
	req := &OpenGroup{Name: name, Message: Enqueue{Queue: "out", Payload: []byte("all of " + name)}}
	if change != nil {
		change(req)
	}
	if err := w.PrepareGroup(req); err != nil {
		w.t.Fatal(err)
	}
	made := false
	w.must(func(tx *Tx) (err error) { made, err = tx.OpenGroup(req); return err })
	return made
}

// join enqueues a member of a group.
func (w *world) join(queue, name string, change func(*Enqueue)) (id ID, err error) {
	w.t.Helper()
	req := &Enqueue{Queue: queue, Group: name, Payload: []byte("member")}
	if change != nil {
		change(req)
	}
	if err := w.Prepare(req); err != nil {
		w.t.Fatal(err)
	}
	err = w.do(func(tx *Tx) (err error) { id, err = tx.Enqueue(req); return err })
	return id, err
}

func (w *world) joins(queue, name string, n int) {
	w.t.Helper()
	for range n {
		if _, err := w.join(queue, name, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) seal(name string) (pending int64) {
	w.t.Helper()
	req := &GroupCall{Name: name}
	w.must(func(tx *Tx) (err error) { pending, err = tx.SealGroup(req); return err })
	return pending
}

func (w *world) cancelGroup(name string) (did bool) {
	w.t.Helper()
	req := &GroupCall{Name: name}
	w.must(func(tx *Tx) (err error) { did, err = tx.CancelGroup(req); return err })
	return did
}

// group describes a group in a few words: its state, and members that are pending, done, dead and cancelled.
func (w *world) group(name string) string {
	w.t.Helper()
	var i GroupInfo
	found := false
	req := &GroupCall{Name: name}
	w.must(func(tx *Tx) (err error) { i, found, err = tx.Group(req); return err })
	if !found {
		return "unknown"
	}
	return fmt.Sprintf("%s %d %d %d %d", i.State, i.Pending, i.Done, i.Dead, i.Cancelled)
}

func (w *world) wantGroup(name, want string) {
	w.t.Helper()
	if got := w.group(name); got != want {
		w.t.Errorf("group %s is %q, want %q", name, got, want)
	}
}

// acks leases and acks up to n messages and returns how many.
func (w *world) acks(queue string, n int) (acked int) {
	w.t.Helper()
	for _, d := range w.lease(queue, n) {
		w.must(func(tx *Tx) error { _, err := tx.Ack(queue, []Receipt{d.Receipt}); return err })
		acked++
	}
	return acked
}

func (w *world) dies(queue string) {
	w.t.Helper()
	d := w.lease(queue, 1)[0]
	w.must(func(tx *Tx) error { _, err := tx.Nack(&Nack{Queue: queue, Receipt: d.Receipt, Dead: true}); return err })
}

func groupWorld(t *testing.T, store Store) *world {
	t.Helper()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	for _, name := range []string{"in", "other", "out"} {
		w.queue(name, QueueOptions{})
	}
	return w
}

// made returns the values of a header of the messages in "out".
func (w *world) made(header string) string {
	w.t.Helper()
	var all []string
	for _, d := range w.lease("out", 10) {
		for _, h := range d.Headers() {
			if string(h.Name) == header {
				all = append(all, string(h.Value))
			}
		}
		w.must(func(tx *Tx) error { _, err := tx.Ack("out", []Receipt{d.Receipt}); return err })
	}
	return strings.Join(all, " ")
}

func TestEachEndOfAMemberCounts(t *testing.T) {
	for name, end := range map[string]struct {
		do                func(w *world)
		ended, done, open string // the state of the group by WHEN ENDED and WHEN DONE, and before it is sealed
	}{
		"ack":   {func(w *world) { w.acks("in", 1) }, "done 0 1 0 0", "done 0 1 0 0", "open 0 1 0 0"},
		"death": {func(w *world) { w.dies("in") }, "done 0 0 1 0", "sealed 0 0 1 0", "open 0 0 1 0"},
		"death without a dead-letter queue": {func(w *world) {
			w.must(func(tx *Tx) error { return tx.AlterQueue("in", QueueOptions{NoDLQ: true}) })
			w.dies("in")
		}, "done 0 0 1 0", "sealed 0 0 1 0", "open 0 0 1 0"},
		"time to live": {func(w *world) { w.Advance(time.Hour) }, "done 0 0 1 0", "sealed 0 0 1 0", "open 0 0 1 0"},
		"purge": {func(w *world) {
			req := &Purge{Queue: "in"}
			w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
		}, "done 0 0 0 1", "done 0 0 0 1", "open 0 0 0 1"},
		"purge of the key": {func(w *world) {
			req := &Purge{Queue: "in", Key: DefaultKey}
			w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
		}, "done 0 0 0 1", "done 0 0 0 1", "open 0 0 0 1"},
		"purge while it is leased": {func(w *world) {
			w.lease("in", 1)
			req := &Purge{Queue: "in"}
			w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
		}, "done 0 0 0 1", "done 0 0 0 1", "open 0 0 0 1"},
		"deletion of the queue": {func(w *world) {
			w.must(func(tx *Tx) error { return tx.DeleteQueue("in", true) })
		}, "done 0 0 0 1", "done 0 0 0 1", "open 0 0 0 1"},
		"purge of the dead letters": {func(w *world) {
			w.dies("in")
			req := &Purge{Queue: "in.dlq"}
			w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
		}, "done 0 0 1 0", "done 0 0 0 1", "open 0 0 1 0"},
		"ack of the dead letter": {func(w *world) {
			w.dies("in")
			w.acks("in.dlq", 1)
		}, "done 0 0 1 0", "done 0 0 0 1", "open 0 0 1 0"},
		"redrive": {func(w *world) {
			w.dies("in")
			req := &Redrive{DLQ: "in.dlq", To: "other"}
			w.must(func(tx *Tx) error { _, err := tx.Redrive(req); return err })
		}, "done 0 0 1 0", "sealed 1 0 0 0", "open 1 0 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, whenDone := range []bool{false, true} {
				for _, first := range []bool{false, true} {
					w := groupWorld(t, storage.NewMemory())
					w.openGroup("g", func(o *OpenGroup) { o.WhenDone = whenDone })
					if _, err := w.join("in", "g", func(req *Enqueue) { req.TTL = time.Minute }); err != nil {
						t.Fatal(err)
					}
					want := end.ended
					if whenDone {
						want = end.done
					}
					if first {
						w.seal("g")
						end.do(w)
					} else {
						open := end.open
						end.do(w)
						w.Advance(0)
						if whenDone && strings.HasPrefix(name, "purge of the dead") || whenDone && strings.HasPrefix(name, "ack of the dead") {
							open = "open 0 0 0 1"
						}
						w.wantGroup("g", open)
						if w.seal("g"); name == "redrive" { // before the group has ended: it is a member again
							want = "sealed 1 0 0 0"
						}
					}
					w.Advance(0)
					w.wantGroup("g", want)
					made := w.made("fila-group")
					if wants := map[bool]string{true: "g"}[strings.HasPrefix(want, "done")]; made != wants {
						t.Errorf("the messages made are %q, want %q", made, wants)
					}
				}
			}
		})
	}
}

func TestTheMessageOfAGroupSurvivesARestart(t *testing.T) {
	store := storage.NewMemory()
	w := groupWorld(t, store)
	w.openGroup("g", func(o *OpenGroup) {
		o.Message.Headers = []Header{{Name: []byte("trace"), Value: []byte("42")}}
		o.Message.Delay, o.Message.Priority = time.Second, new(uint8(9))
	})
	w.joins("in", "g", 3)
	w.joins("other", "g", 2)
	w.seal("g")
	w.dies("in")
	w = openWorld(t, store.Clone(), w.Now(), nil)
	w.wantGroup("g", "sealed 4 0 1 0")
	if w.acks("in", 5)+w.acks("other", 5) != 4 {
		t.Fatal("members are missing")
	}
	w.wantGroup("g", "done 0 4 1 0")
	w = openWorld(t, w.store.(*storage.Memory).Clone(), w.Now(), nil)
	w.wantGroup("g", "done 0 4 1 0")
	if w.openGroup("g", nil) {
		t.Error("a group that is known was opened again")
	}
	if ds := w.lease("out", 1); len(ds) != 0 {
		t.Error("the delay does not count")
	}
	w.Advance(time.Second)
	ds := w.lease("out", 2)
	if len(ds) != 1 || string(ds[0].Payload()) != "all of g" || ds[0].Priority() != 9 || fmt.Sprintf("%s", ds[0].Headers()) != "[{trace 42} {fila-group g} {fila-group-done 4} {fila-group-dead 1}]" {
		t.Errorf("got %d messages, %+v", len(ds), ds)
	}
	w.Advance(25 * time.Hour)
	w.wantGroup("g", "unknown")
	if !w.openGroup("g", nil) {
		t.Error("the name of a group that is forgotten is not free")
	}
	w.Advance(50 * time.Hour)
	if n := countState(w.store, storage.StateGroupEnd); n != 0 {
		t.Errorf("%d groups that have ended are still stored", n)
	}
}

// countState counts the records of a kind in State.
func countState(store Store, kind string) (n int) {
	prefix := storage.AppendStateKey(nil, kind)
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		n++
	}
	return n
}

// A purge is followed by a crash before the members that were there have been ended.
func TestMembersOfAPurgedQueueEndAfterACrash(t *testing.T) {
	store := &keptCommits{Memory: storage.NewMemory()}
	w := groupWorld(t, store)
	w.core.detached.max = 8
	for i := range 20 {
		name := fmt.Sprint("g", i)
		w.openGroup(name, nil)
		w.joins("in", name, 2)
		w.joins("other", name, 1)
		w.seal(name)
	}
	w.acks("other", 20)
	store.keeps = true
	req := &Purge{Queue: "in"}
	w.must(func(tx *Tx) error { _, err := tx.Purge(req); return err })
	crashed := store.kept[0]
	if n := countState(crashed, storage.StateGroup); n < 10 {
		t.Errorf("%d groups are left by the first commit", n)
	}
	for _, w := range []*world{w, openWorld(t, crashed, w.Now(), nil)} {
		w.Advance(0)
		w.wantGroup("g7", "done 0 1 0 2")
		if n := w.counts("out").Ready; n != 20 {
			t.Errorf("%d messages were made, want 20", n)
		}
		if n := countState(w.store, storage.StateGroupCount); n != 0 {
			t.Errorf("%d counts are left", n)
		}
	}
}

func TestNoMemberOfACancelledGroupIsDelivered(t *testing.T) {
	w := groupWorld(t, storage.NewMemory())
	w.openGroup("g", nil)
	w.openGroup("other", nil)
	w.joins("in", "g", 3)
	w.joins("in", "other", 1)
	if _, err := w.join("other", "g", func(req *Enqueue) { req.Delay = time.Minute }); err != nil {
		t.Fatal(err)
	}
	d := w.lease("in", 2)
	var got []*Delivery
	req := &LeaseRequest{Queues: []string{"in"}, Count: 5, Block: -1}
	calls := []Call{
		callFunc(func(tx *Tx) error { _, err := tx.CancelGroup(&GroupCall{Name: "g"}); return err }),
		callFunc(func(tx *Tx) (err error) { got, err = tx.Lease(req); return err }),
	}
	errs := make([]error, 2)
	w.must(func(tx *Tx) error { return tx.Exec(calls, errs) })
	if len(got) != 1 || errors.Join(errs...) != nil {
		t.Errorf("%d messages were delivered, want that of the other group: %v", len(got), errs)
	}
	w.Advance(0)
	w.wantGroup("g", "cancelled 2 0 0 2")
	if n := w.counts("other"); n.Delayed != 0 {
		t.Errorf("%d delayed members are left", n.Delayed)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.Extend("in", d[0].Receipt, time.Minute); return err }); !errors.Is(err, ErrCancelled) {
		t.Errorf("extend: %v", err)
	}
	w.must(func(tx *Tx) error { _, err := tx.Ack("in", []Receipt{d[0].Receipt}); return err })
	w.Advance(time.Minute) // the lease of the other one expires
	w.wantGroup("g", "cancelled 0 1 0 3")
	if w.cancelGroup("g") || w.seal("g") != 0 {
		t.Error("a group that has ended was cancelled or sealed")
	}
	if w.made("fila-group") != "" {
		t.Error("the message of a cancelled group was made")
	}
	if n := w.counts("in"); n.Ready+n.Leased != 1 {
		t.Errorf("%+v", n)
	}
}

func TestReleasedAndFailedMembersOfACancelledGroupAreRemoved(t *testing.T) {
	for name, end := range map[string]func(tx *Tx, r Receipt) error{
		"release": func(tx *Tx, r Receipt) error { _, err := tx.Release("in", []Receipt{r}); return err },
		"nack": func(tx *Tx, r Receipt) error {
			_, err := tx.Nack(&Nack{Queue: "in", Receipt: r, Delay: time.Second})
			return err
		},
		"undeliver": func(tx *Tx, r Receipt) error {
			return tx.Undeliver([]*Delivery{{Receipt: r, Queue: "in"}})
		},
	} {
		w := groupWorld(t, storage.NewMemory())
		w.openGroup("g", nil)
		w.joins("in", "g", 1)
		d := w.lease("in", 1)[0]
		w.cancelGroup("g")
		w.must(func(tx *Tx) error { return end(tx, d.Receipt) })
		w.wantGroup("g", "cancelled 0 0 0 1")
		if n := w.counts("in"); n.Ready+n.Leased+n.Delayed != 0 {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// The sweep reads the queue page by page, and goes on after a restart.
func TestACancelledGroupIsRemovedFromADeepQueue(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.Window = 4 })
	w.queue("in", QueueOptions{})
	w.queue("out", QueueOptions{})
	w.openGroup("g", nil)
	w.openGroup("h", nil)
	for range 1500 {
		w.joins("in", "g", 1)
		w.joins("in", "h", 1)
	}
	w.core.groups.Inside().PauseSweeps(never) // it has not begun
	w.cancelGroup("g")
	w.wantGroup("g", "cancelled 1500 0 0 0")
	w = openWorld(t, store.Clone(), w.Now(), nil)
	w.Advance(time.Second)
	w.wantGroup("g", "cancelled 0 0 0 1500")
	w.wantGroup("h", "open 1500 0 0 0")
	if n := w.counts("in"); n.Ready != 1500 {
		t.Errorf("%d messages are left", n.Ready)
	}
}

// An enqueue never takes the id or the place of a member of a cancelled group, wherever that is.
func TestAMemberOfACancelledGroupGivesItsUniqueIDUp(t *testing.T) {
	for name, change := range map[string]func(*Enqueue){
		"unique":  func(*Enqueue) {},
		"replace": func(req *Enqueue) { req.Replace = true },
		"dedup":   func(req *Enqueue) { req.Dedup = "once" },
	} {
		for _, window := range []int{4, 1 << 10} { // the member is on disk only, or in memory
			for _, delay := range []time.Duration{0, time.Hour} {
				t.Run(fmt.Sprint(name, window, delay), func(t *testing.T) {
					w := openWorld(t, storage.NewMemory(), time.Unix(1_700_000_000, 0), func(c *Config) { c.Window = window })
					w.queue("in", QueueOptions{Given: queueset.Given{queueset.DedupWindow: 60_000}})
					w.queue("out", QueueOptions{})
					w.openGroup("g", nil)
					for range 50 {
						w.enqueue("in", "", "x")
					}
					member := func(group string) ID {
						t.Helper()
						id, err := w.join("in", group, func(req *Enqueue) {
							if req.Unique, req.Delay = "u", delay; group == "" {
								change(req)
							}
						})
						if err != nil {
							t.Fatal(err)
						}
						return id
					}
					was := member("g")
					w.core.groups.Inside().PauseSweeps(never)
					w.cancelGroup("g")
					is := member("")
					if is == was {
						t.Fatal("an enqueue is answered with a message that is cancelled")
					}
					if again := member(""); again != is {
						t.Errorf("the same once more is %s, want %s", again, is)
					}
					w.core.groups.Inside().PauseSweeps(0)
					w.Advance(time.Second)
					w.wantGroup("g", "cancelled 0 0 0 1")
					if n := w.counts("in"); n.Ready+n.Delayed != 51 {
						t.Errorf("%d messages are ready and %d delayed, want 51", n.Ready, n.Delayed)
					}
					if err := w.Check(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

func TestAGroupExpires(t *testing.T) {
	store := storage.NewMemory()
	w := groupWorld(t, store)
	w.openGroup("g", func(o *OpenGroup) { o.Expire = time.Minute })
	w.joins("in", "g", 2)
	w.seal("g")
	w.Advance(59 * time.Second)
	w.wantGroup("g", "sealed 2 0 0 0")
	w = openWorld(t, store.Clone(), w.Now(), nil)
	w.Advance(2 * time.Second)
	w.wantGroup("g", "cancelled 0 0 0 2")
}

func TestAGroupWhoseQueueIsGoneIsCancelled(t *testing.T) {
	w := groupWorld(t, storage.NewMemory())
	w.openGroup("outer", func(o *OpenGroup) { o.Message.Queue = "other" })
	w.openGroup("g", func(o *OpenGroup) { o.Message.Group = "outer" })
	w.joins("in", "g", 1)
	w.seal("g")
	w.seal("outer")
	w.must(func(tx *Tx) error { return tx.DeleteQueue("out", true) })
	w.acks("in", 1)
	w.wantGroup("g", "cancelled 0 1 0 0")
	w.wantGroup("outer", "done 0 0 0 1")
	var i GroupInfo
	req := &GroupCall{Name: "g"}
	w.must(func(tx *Tx) (err error) { i, _, err = tx.Group(req); return err })
	if !strings.Contains(i.Error, `"out"`) {
		t.Errorf("the error is %q", i.Error)
	}
	if w.counts("other").Ready != 1 {
		t.Error("the outer group has made no message")
	}
}

// Nothing refuses the message of a group: it is as a dead letter.
func TestNothingRefusesTheMessageOfAGroup(t *testing.T) {
	w := groupWorld(t, storage.NewMemory())
	w.setBudget("acme", BudgetOptions{Refuse: true})
	if _, err := w.move(BudgetMove{Name: "acme", Amount: 1}); err != nil {
		t.Fatal(err)
	}
	w.openGroup("g", func(o *OpenGroup) {
		o.Message.Budgets, o.Message.Delay = []string{"acme"}, time.Minute
	})
	w.enqueue("out", "k", "first")
	w.must(func(tx *Tx) error {
		return tx.AlterQueue("out", QueueOptions{Given: queueset.Given{queueset.MaxDepth: 1, queueset.TTL: 1000}})
	})
	w.must(func(tx *Tx) error { return tx.Pause("out", true, false, true) })
	if _, err := w.move(BudgetMove{Name: "acme", Amount: 1, Charge: true}); err != nil {
		t.Fatal(err)
	}
	w.seal("g")
	w.wantGroup("g", "done 0 0 0 0")
	if n := w.counts("out"); n.Ready+n.Delayed != 2 {
		t.Errorf("%+v", n)
	}
}

func TestWhatRefusesAMember(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Groups = 2 })
	for _, name := range []string{"in", "out"} {
		w.queue(name, QueueOptions{})
	}
	w.openGroup("g", nil)
	w.openGroup("sealed", nil)
	w.joins("in", "sealed", 1)
	w.seal("sealed")
	for name, want := range map[string]error{"none": ErrNoGroup, "sealed": ErrSealed} {
		if _, err := w.join("in", name, nil); !errors.Is(err, want) {
			t.Errorf("a member of %s: %v", name, err)
		}
	}
	req := &OpenGroup{Name: "third", Message: Enqueue{Queue: "out"}}
	if err := errors.Join(w.PrepareGroup(req), w.do(func(tx *Tx) error { _, err := tx.OpenGroup(req); return err })); !errors.Is(err, ErrTooBig) {
		t.Errorf("a third group: %v", err)
	}
	w.acks("in", 1)
	if _, err := w.join("in", "sealed", nil); !errors.Is(err, ErrSealed) {
		t.Errorf("a member of a group that is done: %v", err)
	}
	unique := func(req *Enqueue) { req.Unique = "u" }
	first, err := w.join("in", "g", unique)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"g", "none", "sealed"} { // the unique id is asked first
		if id, err := w.join("in", name, unique); id != first || err != nil {
			t.Errorf("a repeated member of %s: %v, %v", name, id, err)
		}
	}
	w.wantGroup("g", "open 1 0 0 0")
	if err := w.Prepare(&Enqueue{Queue: "in", Group: "g", Replace: true, Meta: Meta{Unique: "u"}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("GROUP with REPLACE: %v", err)
	}
	replaced := &Enqueue{Queue: "in", Replace: true, Meta: Meta{Unique: "u"}, Payload: []byte("newer")}
	if err := w.Prepare(replaced); err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { _, err := tx.Enqueue(replaced); return err })
	w.wantGroup("g", "open 1 0 0 0")
	w.acks("in", 1)
	w.wantGroup("g", "open 0 1 0 0")
}

func TestEachCopyOfAPublishIsAMember(t *testing.T) {
	w := groupWorld(t, storage.NewMemory())
	w.bind("t", "in")
	w.bind("t", "other")
	w.openGroup("g", nil)
	for _, payload := range []string{"short", strings.Repeat("long", 1000)} {
		if _, err := w.publish(Publish{Topic: "t", Message: Enqueue{Group: "g", Payload: []byte(payload)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.seal("g")
	w.wantGroup("g", "sealed 4 0 0 0")
	w.acks("in", 2)
	w.wantGroup("g", "sealed 2 2 0 0")
	w.acks("other", 2)
	w.wantGroup("g", "done 0 4 0 0")
}

// The message is read from the store if it is not in memory; if that fails, the group is finished later.
func TestTheMessageOfAGroupIsReadAtItsEnd(t *testing.T) {
	store := &failingGets{Memory: storage.NewMemory()}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("in", QueueOptions{})
	w.queue("out", QueueOptions{})
	w.openGroup("g", nil)
	w.joins("in", "g", 1)
	w.seal("g")
	w.core.groups.Inside().ReleaseMessage("g")
	store.fails = true
	w.acks("in", 1)
	w.wantGroup("g", "sealed 0 1 0 0")
	w.Advance(5 * time.Second)
	w.wantGroup("g", "sealed 0 1 0 0")
	store.fails = false
	w.Advance(5 * time.Second)
	w.wantGroup("g", "done 0 1 0 0")
	if w.counts("out").Ready != 1 {
		t.Error("the message was not made")
	}
}

// failingGets is a store whose reads of state fail.
type failingGets struct {
	*storage.Memory
	fails bool
}

func (s *failingGets) Get(f storage.Family, key []byte) ([]byte, error) {
	if s.fails && f == storage.State {
		return nil, errors.New("cannot read")
	}
	return s.Memory.Get(f, key)
}

// keptCommits keeps what the store has after each commit.
type keptCommits struct {
	*storage.Memory
	keeps bool
	kept  []*storage.Memory
}

func (s *keptCommits) Commit(b *storage.Batch, sync bool) error {
	err := s.Memory.Commit(b, sync)
	if s.keeps {
		s.kept = append(s.kept, s.Clone())
	}
	return err
}

// countedCommits fails the test that has it fail for ever.
type countedCommits struct {
	*storage.Memory
	t *testing.T
	n int
}

func (s *countedCommits) Commit(b *storage.Batch, sync bool) error {
	if s.n++; s.n > 1000 {
		s.t.Fatal("the engine commits again and again while the disk is full")
	}
	return s.Memory.Commit(b, sync)
}

// Members of a purged queue are ended right after it, in slices. While the store takes no writes they are left: else each turn
// would have a batch that fails, and the recovery after it another turn.
func TestMembersOfAPurgedQueueWaitForTheDisk(t *testing.T) {
	store := &countedCommits{storage.NewMemory(), t, 0}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("in", QueueOptions{})
	w.queue("out", QueueOptions{})
	for i := range 20 {
		w.openGroup(fmt.Sprint("g", i), nil)
		w.joins("in", fmt.Sprint("g", i), 2)
		w.seal(fmt.Sprint("g", i))
	}
	w.core.detached.max = 1
	purge := &Task{Call: callFunc(func(tx *Tx) error {
		_, err := tx.Purge(&Purge{Queue: "in"})
		return err
	})}
	w.Stepper.turn([]*Task{purge})
	w.commit(w.core.cut())
	left := w.core.groups.Len()
	if left < 10 || !w.core.groups.Lost() {
		t.Fatalf("%d groups are left after the first portion of the members", left)
	}
	store.FailCommits(errors.New("no space left on device"))
	w.Do()
	w.Advance(time.Minute)
	if w.core.health.failed == nil || w.core.groups.Len() != left {
		t.Errorf("%d groups are left, the store has failed: %v", w.core.groups.Len(), w.core.health.failed)
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	w.Do()
	if n := w.core.groups.Len(); n != 0 {
		t.Errorf("%d groups are left once the disk has room", n)
	}
}
