package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Groups in a simulation of their own. Clients open groups, add members to them and end these in every way, under
// crashes at any commit, power loss and failing commits. After each commit the oracle reads the whole store:
//
//   - What a group counts as pending and as buried in a queue that exists is the number of its messages there.
//   - What it counts in all is the number of its members that the store has ever had.
//   - A group of which nothing is pending has come to its end in this commit, not in a later one.
//   - The message of a group has one id, whatever happened, and a group that is done has one.
//
// So a crash behind any commit would find that. Beside it the oracle knows what clients were answered: no member of a
// group is delivered once its cancel was answered, nor answers an enqueue with its unique id unless it is leased, and a
// group counts as done what was acked.

var groupSeeds = flag.Int("groupseeds", 400, "seeds that the simulation of groups runs")

// groupFault is a fault that is planted.
type groupFault int

const (
	noGroupFault groupFault = iota
	groupMessageTwice
	groupForgottenAtDeath
	groupForgottenAtPurge
	memberTwiceByRedrive
	memberOfPurgedLost
	countNotWritten
	cancelledDelivered
	cancelledAnswers
)

func TestSimulationOfGroups(t *testing.T) {
	seeds := *groupSeeds
	if testing.Short() {
		seeds = min(seeds, 60)
	}
	finished := groupTally{}
	for seed := range uint64(seeds) {
		s := newGroupSim(t, seed, noGroupFault)
		if err := s.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		finished.add(&s.tally)
	}
	t.Logf("%+v", finished)
	if seeds >= 60 && min(finished.done, finished.cancelled, finished.crashes, finished.redriven, finished.purged, finished.inner) == 0 {
		t.Errorf("something never happened: %+v", finished)
	}
}

func TestSimulationOfGroupsFindsPlantedFaults(t *testing.T) {
	late := map[groupFault]uint64{cancelledAnswers: 225}
	for fault, name := range map[groupFault]string{
		groupMessageTwice:     "the message of a group in another write than the end of the group",
		groupForgottenAtDeath: "no message when the last member dies", groupForgottenAtPurge: "no message when the last member is purged",
		memberTwiceByRedrive: "a member counted twice by redrive", memberOfPurgedLost: "members of a purged queue stay pending",
		countNotWritten: "a count that is not written", cancelledDelivered: "a member delivered after the cancel",
		cancelledAnswers: "an enqueue answered with a member that is cancelled",
	} {
		t.Run(name, func(t *testing.T) {
			findFault(t, 200, late[fault], func(seed uint64) error { return newGroupSim(t, seed, fault).run() })
		})
	}
}

// groupTally is what has happened in runs.
type groupTally struct{ done, cancelled, crashes, redriven, purged, inner, replaced int }

func (a *groupTally) add(b *groupTally) {
	a.done += b.done
	a.cancelled += b.cancelled
	a.crashes += b.crashes
	a.redriven += b.redriven
	a.purged += b.purged
	a.inner += b.inner
	a.replaced += b.replaced
}

type groupSim struct {
	t     *testing.T
	rng   *rand.Rand
	fault groupFault
	cfg   Config
	units int
	store *groupStore
	step  *Stepper
	crash float64
	err   error
	tally groupTally

	opened int
	inHand []*Delivery

	made      map[string]ID          // message of each group by its name
	names     map[uint64]string      // of groups
	seen      map[uint64]map[ID]bool // members of each group that the store has had
	inner     map[uint64]map[uint64]bool
	dead      map[ID]bool          // members that have been dead
	of        map[ID]string        // group of a member, as was answered
	stored    map[ID]string        // the same, as the store has had it
	unique    map[string][2]string // queue and unique id of a member of each group
	cancelled map[string]bool
	acked     map[string]int // members of a group whose ack was answered
	unsure    map[string]int // acks that were not
	ended     map[string]storage.GroupEnd
}

// groupStore crashes at commits, and has the oracle look at the store after each.
type groupStore struct {
	*storage.Memory
	sim *groupSim
}

func (s *groupStore) Commit(b *storage.Batch, sync bool) error {
	sim := s.sim
	at := sim.rng.Float64()
	if at < sim.crash/2 {
		panic(errCrash)
	}
	commit := s.Memory.Commit
	switch sim.fault { //nolint:exhaustive // the others are planted elsewhere
	case groupMessageTwice:
		commit = s.commitMessageFirst
	case countNotWritten:
		commit = s.commitWithoutCounts
	}
	if err := commit(b, sync); err != nil {
		return err
	}
	sim.look()
	if at < sim.crash {
		panic(errCrash)
	}
	return nil
}

// commitMessageFirst is the fault that writes the messages of groups before their batch.
func (s *groupStore) commitMessageFirst(b *storage.Batch, sync bool) error {
	var first storage.Batch
	_ = b.Each(func(r storage.Record) error {
		var m storage.Message
		if r.Op == storage.OpPut && r.Family == storage.Messages && m.Decode(r.Value) == nil && groupOfMessage(&m) != "" {
			first.Put(r.Family, slices.Clone(r.Key), slices.Clone(r.Value))
		}
		return nil
	})
	if first.Len() > 0 {
		if err := s.Memory.Commit(&first, sync); err != nil {
			return err
		}
		s.sim.lookForMessages()
		if s.sim.rng.IntN(4) == 0 {
			panic(errCrash)
		}
	}
	return s.Memory.Commit(b, sync)
}

// commitWithoutCounts is the fault that now and then leaves a count out.
func (s *groupStore) commitWithoutCounts(b *storage.Batch, sync bool) error {
	var some storage.Batch
	_ = b.Each(func(r storage.Record) error {
		kind, _, _, _ := storage.GroupOf(r.Key)
		switch {
		case r.Family == storage.State && kind == storage.StateGroupCount && s.sim.rng.IntN(50) == 0:
		case r.Op == storage.OpPut:
			some.Put(r.Family, r.Key, r.Value)
		case r.Op == storage.OpDelete:
			some.Delete(r.Family, r.Key)
		case r.Op == storage.OpSingleDelete:
			some.SingleDelete(r.Family, r.Key)
		case r.Op == storage.OpDeleteRange:
			some.DeleteRange(r.Family, r.Key, r.Value)
		}
		return nil
	})
	return s.Memory.Commit(&some, sync)
}

// groupOfMessage returns the group whose message this is; "": of none.
func groupOfMessage(m *storage.Message) string {
	for _, h := range m.Headers {
		if string(h.Name) == "fila-group" {
			return string(h.Value)
		}
	}
	return ""
}

func newGroupSim(t *testing.T, seed uint64, fault groupFault) *groupSim {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible on purpose
	s := &groupSim{
		t: t, rng: rng, fault: fault, cfg: DefaultConfig(), made: map[string]ID{}, names: map[uint64]string{}, seen: map[uint64]map[ID]bool{},
		inner: map[uint64]map[uint64]bool{}, dead: map[ID]bool{}, of: map[ID]string{}, stored: map[ID]string{}, cancelled: map[string]bool{}, acked: map[string]int{},
		unsure: map[string]int{}, ended: map[string]storage.GroupEnd{}, unique: map[string][2]string{},
	}
	s.cfg.Seed, s.cfg.Window, s.cfg.WindowTotal, s.cfg.DueWindow, s.cfg.BodyBytes = seed, 2+rng.IntN(5), 8+rng.IntN(20), 2+rng.IntN(5), int64(rng.IntN(500))
	s.cfg.LeaseWriteDelay = []time.Duration{0, 5 * time.Millisecond}[rng.IntN(2)]
	s.units = []int{16, 64, turnUnits}[rng.IntN(3)]
	s.store = &groupStore{storage.NewMemory(), s}
	step, err := NewStepper(s.cfg, s.store, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	s.step = step
	s.tune()
	for _, name := range []string{"a", "b"} {
		s.create(name)
	}
	s.call(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: "a"}); return err })
	s.call(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: "b"}); return err })
	s.crash = []float64{0, 0.02, 0.1}[rng.IntN(3)]
	if fault == groupMessageTwice {
		s.crash = 0
	}
	return s
}

func (s *groupSim) tune() {
	c := s.step.core
	c.detached.max, c.tasks.budget.Turn, c.heads.prefetchKeysMin, c.bodies.min = 1+s.rng.IntN(20), s.units, 1, 64
	c.groups.Inside().Fold(1 + s.rng.IntN(4))
}

func (s *groupSim) create(name string) {
	s.call(func(tx *Tx) error {
		return tx.CreateQueue(name, QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 2, queueset.Backoff: 0, queueset.Visibility: 500}})
	})
}

// call runs a call and returns its error.
func (s *groupSim) call(call func(tx *Tx) error) error {
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(call)} // a recovery continues what waits for a client
	s.step.Do(task)
	for range 50 { // a redrive with a rate, a search that is retried
		if task.Done() {
			return task.Err()
		}
		s.step.Advance(100 * time.Millisecond)
	}
	s.fail("a task waits: %+v", task.wait)
	return errWaits
}

func (s *groupSim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// run runs a random program.
func (s *groupSim) run() error {
	for range 250 {
		s.guard(s.once)
		if s.err == nil {
			if err := s.step.Check(); err != nil {
				s.fail("%w", err)
			}
		}
		if s.err != nil {
			return s.err
		}
	}
	s.crash = 0
	s.drain()
	return s.err
}

// guard runs a step, and a restart if the step ends in a crash.
func (s *groupSim) guard(step func()) {
	defer func() {
		if p := recover(); p == errCrash { //nolint:errorlint // a panic value
			s.restart(s.rng.IntN(3) == 0)
		} else if p != nil {
			panic(p)
		}
	}()
	step()
	if s.rng.Float64() < s.crash/2 {
		s.restart(s.rng.IntN(3) == 0)
	}
}

func (s *groupSim) restart(powerLoss bool) {
	s.tally.crashes++
	memory := s.store.Clone()
	if powerLoss {
		memory = s.store.CloneSynced()
	}
	memory.FailCommits(nil)
	s.store = &groupStore{memory, s}
	crash := s.crash
	s.crash = 0 // a start that crashes is another start
	step, err := NewStepper(s.cfg, s.store, s.step.now)
	if s.crash = crash; err != nil {
		s.fail("restart: %w", err)
		return
	}
	s.step, s.inHand = step, nil
	s.tune()
}

func (s *groupSim) queue() string { return []string{"a", "b"}[s.rng.IntN(2)] }

func (s *groupSim) any() string { return fmt.Sprint("g", max(s.opened-s.rng.IntN(6), 0)) }

// once runs one random command.
func (s *groupSim) once() {
	switch n := s.rng.IntN(100); {
	case n < 8:
		s.open()
	case n < 35:
		s.join()
	case n < 38:
		s.publish()
	case n < 42:
		name := s.any()
		req := &GroupCall{Name: name}
		_ = s.call(func(tx *Tx) error { _, err := tx.SealGroup(req); return err })
	case n == 42:
		s.cancel()
	case n < 60:
		s.lease([]string{"a", "b", "a.dlq", "b.dlq"}[min(s.rng.IntN(6), 3)])
	case n < 82:
		s.answer()
	case n < 86:
		s.redrive()
	case n == 86:
		s.purge()
	case n == 87:
		s.recreate()
	case n == 88:
		s.cancelMessages()
	case n < 92:
		s.transact()
	case n == 92:
		s.diskFails()
	case n == 93:
		s.step.Advance(time.Duration(s.rng.IntN(120)) * time.Minute)
	default:
		s.step.Advance(time.Duration(s.rng.IntN(400)) * time.Millisecond)
	}
}

func (s *groupSim) open() {
	s.opened++
	req := &OpenGroup{Name: fmt.Sprint("g", s.opened), WhenDone: s.rng.IntN(2) == 0, Message: Enqueue{Queue: s.queue(), Key: "groups", Payload: []byte("all")}}
	if s.rng.IntN(6) == 0 {
		req.Expire = time.Duration(1+s.rng.IntN(3000)) * time.Millisecond
	}
	if s.rng.IntN(3) == 0 {
		req.Message.Group = s.any()
	}
	if s.rng.IntN(4) == 0 {
		req.Message.Delay = 50 * time.Millisecond
	}
	if err := s.step.PrepareGroup(req); err != nil {
		s.fail("open: %w", err)
		return
	}
	if err := s.call(func(tx *Tx) error { _, err := tx.OpenGroup(req); return err }); err == nil && req.Message.Group != "" {
		s.tally.inner++
	}
}

func (s *groupSim) member(name string) *Enqueue {
	req := &Enqueue{Queue: s.queue(), Key: fmt.Sprint("k", s.rng.IntN(3)), Group: name, Payload: []byte("member")}
	if s.rng.IntN(5) == 0 {
		req.Delay = time.Duration(1+s.rng.IntN(300)) * time.Millisecond
	}
	if s.rng.IntN(6) == 0 {
		req.TTL = req.Delay + time.Duration(1+s.rng.IntN(500))*time.Millisecond
	}
	if s.rng.IntN(5) == 0 {
		req.Unique = fmt.Sprint("u", s.rng.IntN(3))
	}
	if req.Unique != "" && s.rng.IntN(2) == 0 { // a member that is replaced stays one
		req.Group, req.Replace = "", true
	}
	if err := s.step.Prepare(req); err != nil {
		s.fail("prepare: %w", err)
	}
	return req
}

func (s *groupSim) join() {
	req := s.member(s.any())
	var id ID
	known := false
	err := s.call(func(tx *Tx) (err error) {
		before := tx.core.ids.last
		id, err = tx.Enqueue(req)
		known = tx.core.ids.last == before
		return err
	})
	if err == nil && !known && req.Group != "" {
		s.of[id] = req.Group
		if req.Unique != "" {
			s.unique[req.Group] = [2]string{req.Queue, req.Unique}
		}
	}
	if err == nil && req.Replace && known {
		s.tally.replaced++
	}
}

func (s *groupSim) publish() {
	req := &Publish{Topic: "t", Message: Enqueue{Group: s.any(), Payload: []byte("a payload that is long enough to be stored once for all queues, as a body")}}
	if err := s.step.PreparePublish(req); err != nil {
		s.fail("publish: %w", err)
		return
	}
	name := req.Message.Group
	var list []Published
	if err := s.call(func(tx *Tx) (err error) { list, err = tx.Publish(req); return err }); err == nil {
		for _, p := range list {
			s.of[p.ID] = name
		}
	}
}

func (s *groupSim) cancel() {
	name := s.any()
	req := &GroupCall{Name: name}
	did := false
	cancel := func(tx *Tx) (err error) { did, err = tx.CancelGroup(req); return err }
	if s.rng.IntN(2) == 0 {
		if err := s.call(cancel); err == nil && did {
			s.cancelled[name] = true
		}
		return
	}
	// In the same transaction no sweep has begun yet.
	var ds []*Delivery
	lease := &LeaseRequest{Queues: []string{s.queue()}, Count: 3, Block: -1}
	calls := []Call{
		&groupPreflight{req.Preflight, cancel},
		&groupPreflight{func(tx *Tx) error { return tx.PreflightLease(lease) }, func(tx *Tx) (err error) {
			if s.fault == cancelledDelivered {
				defer forgetCancels(tx.core)()
			}
			ds, err = tx.Lease(lease)
			return err
		}},
	}
	answer := func() {}
	if of, is := s.unique[name]; is && s.rng.IntN(2) == 0 {
		calls[1], answer = s.takeUnique(of[0], of[1])
	}
	errs := make([]error, len(calls))
	if err := s.call(func(tx *Tx) error { return tx.Exec(calls, errs) }); err == nil && errs[0] == nil {
		s.cancelled[name] = s.cancelled[name] || did
		if errs[1] == nil {
			answer()
			s.got(ds)
		}
	}
}

// takeUnique returns an enqueue that names a unique id, and what judges its answer.
func (s *groupSim) takeUnique(queue, unique string) (call Call, answer func()) {
	req := &Enqueue{Queue: queue, Key: fmt.Sprint("k", s.rng.IntN(3)), Payload: []byte("other")}
	req.Unique = unique
	if err := s.step.Prepare(req); err != nil {
		s.fail("prepare: %w", err)
	}
	var id ID
	known, leased := false, false
	call = &simEnqueue{req, func(tx *Tx) (err error) {
		if t := &tx.core.groups; s.fault == cancelledAnswers {
			defer t.Inside().HideSweeps()()
		}
		before := tx.core.ids.last
		id, err = tx.Enqueue(req)
		known, leased = tx.core.ids.last == before, tx.core.leases.byID[id] != nil
		return err
	}}
	return call, func() {
		if name := s.stored[id]; known && !leased && s.cancelled[name] && !s.dead[id] {
			s.fail("an enqueue is answered with %s, a member of the group %s, which is cancelled", id, name)
		}
	}
}

// forgetCancels makes the cancelled groups ones that are not, until the function that it returns is called.
func forgetCancels(c *core) (back func()) {
	was := map[*group.Group]int64{}
	c.groups.Walk(0, c.groups.Len(), func(g *group.Group) {
		was[g], g.CancelledAt = g.CancelledAt, 0
	})
	return func() {
		for g, at := range was {
			g.CancelledAt = at
		}
	}
}

func (s *groupSim) lease(queue string) {
	req := &LeaseRequest{Queues: []string{queue}, Count: 1 + s.rng.IntN(4), Block: -1}
	var ds []*Delivery
	if err := s.call(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err }); err == nil {
		s.got(ds)
	}
}

// got gives a client the deliveries of its reply.
func (s *groupSim) got(ds []*Delivery) {
	for _, d := range ds {
		if name := s.of[d.Receipt.ID]; s.cancelled[name] && !s.dead[d.Receipt.ID] {
			s.fail("%s of the group %s was delivered after the cancel", d.Receipt.ID, name)
		}
		s.inHand = append(s.inHand, d)
	}
}

// answer ends or extends a lease, or forgets it.
func (s *groupSim) answer() {
	if len(s.inHand) == 0 {
		return
	}
	i := s.rng.IntN(len(s.inHand))
	d := s.inHand[i]
	s.inHand = slices.Delete(s.inHand, i, i+1)
	r := []Receipt{d.Receipt}
	switch n := s.rng.IntN(10); {
	case n < 5:
		s.ack(d)
	case n < 8:
		req := &Nack{Queue: d.Queue, Receipt: d.Receipt, Delay: time.Duration(s.rng.IntN(2)) * 50 * time.Millisecond, Dead: n == 7}
		_ = s.call(func(tx *Tx) error {
			_, err := tx.Nack(req)
			if s.fault == groupForgottenAtDeath {
				tx.core.groups.Inside().ForgetOver()
			}
			return err
		})
	case n == 8:
		_ = s.call(func(tx *Tx) error { _, err := tx.Release(d.Queue, r); return err })
	default:
		_ = s.call(func(tx *Tx) error { _, err := tx.Extend(d.Queue, d.Receipt, time.Second); return err })
		s.inHand = append(s.inHand, d)
	}
}

func (s *groupSim) ack(d *Delivery) {
	name := s.stored[d.Receipt.ID]
	if name != "" {
		s.unsure[name]++
	}
	counts := name != "" && (d.Queue == "a" || d.Queue == "b") && !s.dead[d.Receipt.ID] // else it may have been redriven after the end
	acked := 0
	err := s.call(func(tx *Tx) (err error) { acked, err = tx.Ack(d.Queue, []Receipt{d.Receipt}); return err })
	if counts && err == nil {
		s.unsure[name]--
		s.acked[name] += acked
	}
}

func (s *groupSim) redrive() {
	req := &Redrive{DLQ: s.queue() + ".dlq", Count: s.rng.IntN(4)}
	if s.rng.IntN(2) == 0 {
		req.To = s.queue()
	}
	moved := 0
	_ = s.call(func(tx *Tx) (err error) { moved, err = tx.Redrive(req); return err })
	s.tally.redriven += moved
	if s.fault == memberTwiceByRedrive && moved > 0 {
		for _, name := range []string{"a", "b"} {
			if q := s.step.core.queues.byName[name]; q != nil {
				s.step.core.groups.Inside().CountAgain(q.no)
			}
		}
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { tx.core.out.sync = true; return nil })})
	}
}

func (s *groupSim) purge() {
	req := &Purge{Queue: s.queue()}
	switch s.rng.IntN(3) {
	case 0:
		req.Queue += ".dlq"
	case 1:
		req.Key = fmt.Sprint("k", s.rng.IntN(3))
	}
	n := 0
	_ = s.call(func(tx *Tx) (err error) {
		n, err = tx.Purge(req)
		switch s.fault { //nolint:exhaustive // the others are planted elsewhere
		case memberOfPurgedLost:
			tx.core.groups.Inside().ForgetLost()
		case groupForgottenAtPurge:
			tx.core.groups.Reclaim(1 << 20)
			tx.core.groups.Inside().ForgetOver()
		}
		return err
	})
	s.tally.purged += n
}

func (s *groupSim) recreate() {
	name := s.queue()
	_ = s.call(func(tx *Tx) error { return tx.DeleteQueue(name, true) })
	s.create(name)
	_ = s.call(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: name}); return err })
}

func (s *groupSim) cancelMessages() {
	req := &Cancel{Queue: s.queue()}
	for _, d := range s.inHand {
		req.IDs = append(req.IDs, d.Receipt.ID)
	}
	for id := range s.of {
		if id[15]%4 == 0 {
			req.IDs = append(req.IDs, id)
		}
	}
	slices.SortFunc(req.IDs, func(a, b ID) int { return slices.Compare(a[:], b[:]) })
	_ = s.call(func(tx *Tx) error { _, err := tx.Cancel(req); return err })
}

// transact opens a group, adds a member, acks another and seals the group in one write.
func (s *groupSim) transact() {
	s.opened++
	name := fmt.Sprint("g", s.opened)
	open := &OpenGroup{Name: name, Message: Enqueue{Queue: s.queue(), Payload: []byte("all")}}
	if err := s.step.PrepareGroup(open); err != nil {
		s.fail("open: %w", err)
	}
	req := s.member(name)
	seal := &GroupCall{Name: name}
	calls := []Call{
		&groupPreflight{open.Preflight, func(tx *Tx) error { _, err := tx.OpenGroup(open); return err }},
		&simEnqueue{req, func(tx *Tx) error { _, err := tx.Enqueue(req); return err }},
		&groupPreflight{seal.Preflight, func(tx *Tx) error { _, err := tx.SealGroup(seal); return err }},
	}
	if s.rng.IntN(3) == 0 {
		calls = slices.Delete(calls, 1, 2) // the group is done at once
	}
	errs := make([]error, len(calls))
	_ = s.call(func(tx *Tx) error { return tx.Exec(calls, errs) })
}

// groupPreflight is a call with a preflight.
type groupPreflight struct {
	preflight, apply func(tx *Tx) error
}

func (c *groupPreflight) Preflight(tx *Tx) error { return c.preflight(tx) }
func (c *groupPreflight) Apply(tx *Tx) error     { return c.apply(tx) }

// diskFails has the commit of a command fail, after which the engine recovers in place.
func (s *groupSim) diskFails() {
	if s.rng.IntN(2) == 0 {
		s.store.FailCommits(errors.New("no space left"))
	} else {
		s.store.FailCommitsLate(errors.New("i/o error"))
	}
	s.join()
	s.answer()
	s.store.FailCommits(nil)
	if s.step.core.health.failed != nil {
		if err := s.step.Repair(); err != nil {
			s.fail("repair: %w", err)
		}
		s.inHand = nil
		s.tune()
	}
	s.step.Do()
}

// look compares the groups in the store with the messages in it.
func (s *groupSim) look() {
	s.lookForMessages()
	queues := map[uint32]bool{}
	s.each(storage.Queues, nil, func(_, v []byte) error {
		var q storage.Queue
		err := q.Decode(v)
		queues[q.Number] = true
		return err
	})
	heads := map[uint64]*storage.Group{}
	s.each(storage.State, storage.AppendStateKey(nil, storage.StateGroup), func(k, v []byte) error {
		number, _, err := storage.ParseGroupKey(k)
		g := new(storage.Group)
		heads[number], s.names[number] = g, ""
		err = errors.Join(err, g.Decode(v))
		s.names[number] = g.Name
		if g.Outer != 0 {
			if s.inner[g.Outer] == nil {
				s.inner[g.Outer] = map[uint64]bool{}
			}
			s.inner[g.Outer][number] = true
		}
		return err
	})
	type at struct {
		group uint64
		queue uint32
	}
	has := map[at]storage.GroupCount{}
	s.each(storage.Messages, nil, func(k, v []byte) error {
		mk, err := storage.ParseMessageKey(k)
		var m storage.Message
		err = errors.Join(err, m.Decode(v))
		if m.MemberOf == 0 {
			return err
		}
		s.stored[mk.ID] = s.names[m.MemberOf]
		if s.seen[m.MemberOf] == nil {
			s.seen[m.MemberOf] = map[ID]bool{}
		}
		if groupOfMessage(&m) == "" { // else it is counted as an inner group
			s.seen[m.MemberOf][mk.ID] = true
		}
		n := has[at{m.MemberOf, mk.Queue}]
		if m.Died {
			n.Buried++
			s.dead[mk.ID] = true
		} else {
			n.Pending++
		}
		has[at{m.MemberOf, mk.Queue}] = n
		return err
	})
	sums := map[uint64]*storage.GroupCount{}
	for number := range heads {
		sums[number] = &storage.GroupCount{}
	}
	s.each(storage.State, storage.AppendStateKey(nil, storage.StateGroupCount), func(k, v []byte) error {
		number, queue, err := storage.ParseGroupKey(k)
		var n storage.GroupCount
		err = errors.Join(err, n.Decode(v))
		sum := sums[number]
		if sum == nil {
			return fmt.Errorf("a count of the group %d (%s), which is not there", number, s.names[number])
		}
		sum.Pending += n.Pending
		sum.Buried += n.Buried
		sum.Done += n.Done
		sum.Dead += n.Dead
		sum.Cancelled += n.Cancelled
		if is := has[at{number, queue}]; queues[queue] && (is.Pending != n.Pending || is.Buried != n.Buried) {
			return fmt.Errorf("group %s counts %+v in queue %d, and has %+v", s.names[number], n, queue, is)
		}
		delete(has, at{number, queue})
		return err
	})
	for key, n := range has {
		if heads[key.group] != nil && queues[key.queue] {
			s.fail("group %s does not count %+v in queue %d", s.names[key.group], n, key.queue)
		}
	}
	for number, sum := range sums {
		s.lookAt(heads[number], number, sum)
	}
}

// lookAt checks the sums of a group in the store.
func (s *groupSim) lookAt(g *storage.Group, number uint64, sum *storage.GroupCount) {
	if members := int64(len(s.seen[number]) + len(s.inner[number])); sum.Pending+sum.Buried+sum.Done+sum.Dead+sum.Cancelled != members {
		s.fail("group %s counts %+v, and has had %d members", g.Name, *sum, members)
	}
	over := sum.Pending == 0 && (g.CancelledAt != 0 || g.SealedAt != 0 && (!g.WhenDone || sum.Dead+sum.Buried == 0))
	if over {
		s.fail("group %s has come to its end with %+v, and is stored as if it had not", g.Name, *sum)
	}
}

// lookForMessages looks for the messages of groups, and for groups that have come to their end.
func (s *groupSim) lookForMessages() {
	s.each(storage.Messages, nil, func(k, v []byte) error {
		mk, err := storage.ParseMessageKey(k)
		var m storage.Message
		if err := errors.Join(err, m.Decode(v)); err != nil {
			return err
		}
		name := groupOfMessage(&m)
		if was, made := s.made[name]; name != "" && made && was != mk.ID {
			return fmt.Errorf("the message of group %s is %s, and was %s", name, mk.ID, was)
		}
		if name != "" {
			s.made[name] = mk.ID
		}
		return nil
	})
	s.each(storage.State, storage.AppendStateKey(nil, storage.StateGroupEnd), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		var e storage.GroupEnd
		if err := errors.Join(err, e.Decode(v)); err != nil {
			return err
		}
		name := parts[2]
		if _, before := s.ended[name]; !before {
			if e.Cancelled {
				s.tally.cancelled++
			} else {
				s.tally.done++
			}
		}
		s.ended[name] = e
		id := s.made[name]
		if e.Cancelled != (id == ID{}) || e.Message != id {
			return fmt.Errorf("group %s is %+v, and its message is %s", name, e, id)
		}
		if members := int64(len(s.seen[e.Number]) + len(s.inner[e.Number])); e.Done+e.Dead+e.CancelledNumber != members {
			return fmt.Errorf("group %s is %+v, and has had %d members", name, e, members)
		}
		return nil
	})
}

func (s *groupSim) each(f storage.Family, prefix []byte, look func(k, v []byte) error) {
	it := s.store.Memory.Scan(f, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		if err := look(it.Key(), it.Value()); err != nil {
			s.fail("%w", err)
		}
	}
}

// drain ends the run without faults: all groups are sealed, and everything is acked. Each group then is done, but for
// those that were cancelled and those that wait for members which have died.
func (s *groupSim) drain() {
	s.step.Do()
	for i := range s.opened {
		req := &GroupCall{Name: fmt.Sprint("g", i+1)}
		_ = s.call(func(tx *Tx) error { _, err := tx.SealGroup(req); return err })
	}
	for empty := 0; empty < 3 && s.err == nil; {
		s.step.Advance(time.Second)
		s.inHand = nil
		for _, q := range []string{"a", "b", "a.dlq", "b.dlq"} {
			s.lease(q)
		}
		if empty++; len(s.inHand) > 0 {
			empty = 0
		}
		for _, d := range s.inHand {
			s.ack(d)
		}
		if empty == 2 {
			s.step.Advance(time.Hour)
		}
	}
	for i := range s.opened { // of those that wait, the dead members were dropped with their queue or by their time to live
		name := fmt.Sprint("g", i+1)
		if g := s.step.core.groups.Get(name); g != nil && (g.Pending > 0 || !g.WhenDone || g.Dead == 0) {
			s.fail("at the end group %s is %+v, %+v", name, g.Group, g.Counts)
		} else if g != nil {
			req := &GroupCall{Name: name}
			_ = s.call(func(tx *Tx) error { _, err := tx.CancelGroup(req); return err })
		}
	}
	for name, e := range s.ended {
		if least := int64(s.acked[name]); !e.Cancelled && (e.Done < least || e.Done > least+int64(s.unsure[name])) {
			s.fail("group %s counts %d as done, %d acks were answered and %d were not", name, e.Done, least, s.unsure[name])
		}
	}
	for _, kind := range []string{storage.StateGroup, storage.StateGroupMessage, storage.StateGroupCount} {
		if n := countState(s.store, kind); n != 0 && s.err == nil {
			s.fail("at the end %d records of the kind %s are left", n, kind)
		}
	}
	if err := s.step.Check(); err != nil {
		s.fail("%w", err)
	}
}
