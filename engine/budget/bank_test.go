package budget

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

const keep = 3 // days of the ledger

// bank is what the engine is to accounts: it writes what a change says, at a time of its own.
type bank struct {
	Accounts
	t         *testing.T
	store     *storage.Memory
	batch     storage.Batch
	w         Moment
	committed uint64
	starts    uint64
	saved     func() // called at each cut; nil: nothing is
}

func newBank(t *testing.T) *bank {
	t.Helper()
	at := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	b := &bank{t: t, store: storage.NewMemory(), w: Moment{Now: at, Calendar: at, Batch: 1}}
	b.recover()
	return b
}

// follow puts the entries of a change into the open batch.
func (b *bank) follow(ch Change) Change {
	for _, e := range ch.Entries {
		b.batch.Put(storage.Ledger, e.Key, e.Value)
	}
	return ch
}

// cut writes the open batch.
func (b *bank) cut() {
	b.t.Helper()
	b.Records(func(name string, record []byte) { b.batch.Put(storage.Budgets, []byte(name), record) })
	if err := b.store.Commit(&b.batch, true); err != nil {
		b.t.Fatal(err)
	}
	b.batch.Reset()
	b.committed = b.w.Batch
	b.w.Batch++
	if b.saved != nil {
		b.saved()
	}
}

// recover rebuilds the accounts from the store. What was not cut is lost.
func (b *bank) recover() {
	b.t.Helper()
	b.batch.Reset()
	b.starts++
	days, err := ledger.Recorded(b.store)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Reset()
	b.Recover(days, b.w.Batch)
	it := b.store.Scan(storage.Budgets, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		var rec storage.Budget
		if err := rec.Decode(it.Value()); err != nil {
			b.t.Fatal(err)
		}
		if err := b.Restore(string(it.Key()), &rec); err != nil {
			b.t.Fatal(err)
		}
	}
}

// advance lets time pass.
func (b *bank) advance(d time.Duration) {
	b.w.Now += int64(d)
	b.w.Calendar += int64(d)
	if _, from, to := b.Expire(b.w.Now, b.committed, keep, 1<<20); from != nil {
		b.batch.DeleteRange(storage.Ledger, from, to)
	}
}

func (b *bank) set(name string, s Settings) (*Account, Change) {
	a, ch := b.Set(name, &s, b.starts<<32, b.w)
	return a, b.follow(ch)
}

// move moves an account, with a look-up that is repeated as often as it takes.
func (b *bank) move(a *Account, m Move) (int64, Change, error) {
	b.t.Helper()
	for {
		balance, ch, err := b.Move(a, &m, b.w)
		b.follow(ch)
		if !errors.Is(err, recent.ErrStale) {
			return balance, ch, err
		}
		seen := b.w.Batch
		b.cut()
		m.Known = b.View().Look(b.store, m.Name, m.ID, seen)
	}
}

// history returns all entries of an account, the newest first.
func (b *bank) history(a *Account, count int) (all []ledger.Entry) {
	b.t.Helper()
	b.cut()
	for before := int64(0); ; {
		p := b.Page(a, before, count, b.w.Now, keep)
		list, next, err := p.Read(b.store)
		if err != nil || !p.Of(a) || len(list) > count {
			b.t.Fatalf("%d entries of %d, %v", len(list), count, err)
		}
		if all = append(all, list...); next == 0 {
			return all
		}
		before = next
	}
}

// model is an account that is refilled at every tick, one at a time.
type model struct {
	credited, spent int64
	debt            int64
	amount, most    int64 // of the refill
	every           string
	ticks           *schedule.Schedule // of every
	next            int64
	reserved        []int64
	ids             map[string]move
}

// move is what was answered under an id.
type move struct{ change, balance int64 }

func (m *model) clone() *model {
	c := *m
	c.reserved, c.ids = slices.Clone(m.reserved), maps.Clone(m.ids)
	return &c
}

func (m *model) balance() int64 { return m.credited - m.spent }

func (m *model) free() (n int64) {
	n = m.balance()
	for _, r := range m.reserved {
		n -= r
	}
	return n
}

func (m *model) catchUp(now int64) {
	for m.next != 0 && m.next <= now {
		m.credited += min(m.amount, max(0, m.most-m.balance()))
		m.next = m.ticks.After(m.next, m.next)
	}
}

// program is a random program of calls, beside a model of what they do.
type program struct {
	*bank
	r            *rand.Rand
	models, kept map[string]*model // kept: as of the last cut
	looks        map[string]Lookup // of ids, some of them old

	known, refused, refilled, stale, lost int
}

func copied(models map[string]*model) map[string]*model {
	c := map[string]*model{}
	for name, m := range models {
		c[name] = m.clone()
	}
	return c
}

// followed checks what a change says against what has changed.
func (p *program) followed(a *Account, before storage.Budget, cover int64, ch Change) {
	p.t.Helper()
	p.follow(ch)
	if ch.Refilled {
		p.refilled++
	}
	switch now := a.sums.Cover(); {
	case now > cover && !ch.Freed, now < cover && !ch.Drained:
		p.t.Fatalf("%q covered %d and covers %d: %+v", a.name, cover, now, ch)
	case !ch.Stored && a.record() != before:
		p.t.Fatalf("%q has another record, and it is not written: %+v", a.name, ch)
	case ch.Freed && a.FreedIn() != p.w.Batch:
		p.t.Fatalf("%q covers more since batch %d, it is %d", a.name, a.FreedIn(), p.w.Batch)
	}
}

// step calls something, and does the same with the model.
func (p *program) step(name string) {
	p.t.Helper()
	r, m, a := p.r, p.models[name], p.Get(name)
	if (m == nil) != (a == nil) {
		p.t.Fatalf("%q is there: %v", name, a != nil)
	}
	if a == nil || r.IntN(12) == 0 {
		p.settings(name)
		return
	}
	before, cover := a.record(), a.sums.Cover()
	switch op := r.IntN(12); {
	case op < 5:
		p.moveOnce(a, m)
	case op < 7: // a lease
		ready := a.CoverAt(p.w.Calendar)
		p.followed(a, before, cover, p.CatchUp(a, p.w))
		if m.catchUp(p.w.Calendar); ready != max(m.free()+m.debt, 0) || ready != a.sums.Cover() {
			p.t.Fatalf("%q covers %d before its refill, %d after it, want %d", name, ready, a.sums.Cover(), m.free()+m.debt)
		}
		if charge := r.Int64N(10); charge <= ready {
			a.Reserve(charge)
			m.reserved = append(m.reserved, charge)
		}
	case op < 10 && len(m.reserved) > 0: // its end
		i := r.IntN(len(m.reserved))
		charge := m.reserved[i]
		m.reserved = slices.Delete(m.reserved, i, i+1)
		if r.IntN(3) == 0 {
			p.followed(a, before, cover, p.Return(a, charge, p.w))
			return
		}
		used := r.Int64N(12)
		m.catchUp(p.w.Calendar)
		m.spent += used
		p.followed(a, before, cover, p.Settle(a, charge, used, Work{Queue: "q", Key: "k", Message: []byte("m")}, p.w))
	case op == 10 && len(m.reserved) == 0:
		p.Delete(a)
		p.batch.Delete(storage.Budgets, []byte(name))
		delete(p.models, name)
	default:
		p.followed(a, before, cover, p.CatchUp(a, p.w))
		m.catchUp(p.w.Calendar)
	}
}

// settings makes an account, or sets it again.
func (p *program) settings(name string) {
	p.t.Helper()
	r, m := p.r, p.models[name]
	s := Settings{Debt: int64(r.IntN(3)) * 5, Detail: r.IntN(3) == 0}
	made := m == nil
	if made {
		m = &model{ids: map[string]move{}}
		p.models[name] = m
	} else {
		m.catchUp(p.w.Calendar)
	}
	m.debt = s.Debt
	switch {
	case r.IntN(2) == 0:
		m.amount, m.most, m.every, m.next = 0, 0, "", 0
	default:
		n, every := 1+r.Int64N(20), []string{"* * * * *", "*/5 * * * *", "@hourly"}[r.IntN(3)]
		refill, err := NewRefill(n, every, "", 2*n)
		if err != nil {
			p.t.Fatal(err)
		}
		s.Refill = refill
		none := m.amount == 0
		m.amount, m.most = n, 2*n
		if m.every != every {
			m.every, m.ticks, m.next = every, refill.schedule, refill.schedule.First(p.w.Calendar)
		}
		if none {
			m.credited += min(m.amount, max(0, m.most-m.balance()))
		}
	}
	if made {
		a, ch := p.set(name, s)
		p.followed(a, storage.Budget{}, -1, ch)
		return
	}
	a := p.Get(name)
	before, cover := a.record(), a.sums.Cover()
	_, ch := p.Set(name, &s, p.starts<<32, p.w)
	if p.followed(a, before, cover, ch); !ch.Stored {
		p.t.Fatal("settings are not written")
	}
}

// moveOnce moves an account, often under an id that is known.
func (p *program) moveOnce(a *Account, m *model) {
	p.t.Helper()
	r := p.r
	req := Move{Name: a.name, Amount: 1 + r.Int64N(15), Charge: r.IntN(2) == 0, Force: r.IntN(5) == 0}
	_, change := req.Kind()
	if r.IntN(2) == 0 {
		req.ID = fmt.Sprint("id", r.IntN(12))
		if was, again := m.ids[req.ID]; again && r.IntN(3) > 0 { // the client sends it again
			change = was.change
			req.Amount, req.Charge = max(change, -change), change < 0
		}
		key := a.name + req.ID
		if req.Known = p.looks[key]; r.IntN(3) > 0 {
			req.Known = p.View().Look(p.store, req.Name, req.ID, p.committed)
			p.looks[key] = req.Known
		}
		if _, err := p.recent.Find(movementKey{a.made, req.ID}, &req.Known); errors.Is(err, recent.ErrStale) {
			p.stale++
		}
	}
	// What was answered under the id counts, unless a crash has taken both back.
	was, again := m.ids[req.ID]
	m.catchUp(p.w.Calendar)
	before, free := a.record(), m.free()
	balance, _, err := p.move(a, req)
	var used *UsedError
	switch {
	case again && was.change != change:
		if !errors.As(err, &used) || used.Amount != max(was.change, -was.change) {
			p.t.Fatalf("id %s of %d, and now %d: %v", req.ID, was.change, change, err)
		}
		p.refused++
	case again:
		if err != nil || balance != was.balance {
			p.t.Fatalf("id %s, again: %d, %v, want %d", req.ID, balance, err, was.balance)
		}
		p.known++
	case errors.Is(err, credit.ErrNotCovered):
		if !req.Charge || req.Force || free+m.debt >= req.Amount {
			p.t.Fatalf("%d are available, and refused: %+v", free, req)
		}
		p.refused++
	case err != nil:
		p.t.Fatal(err)
	default:
		m.credited += max(change, 0)
		m.spent += max(-change, 0)
		if req.ID != "" {
			m.ids[req.ID] = move{change, balance}
		}
		if a.record() == before || balance != m.balance() {
			p.t.Fatalf("a movement of %d to %d: want %d", change, balance, m.balance())
		}
	}
}

// check compares the accounts with the models, and verifies the invariants 28 and 29.
func (p *program) check() {
	p.t.Helper()
	reserved := map[string]int64{}
	for name, m := range p.models {
		for _, n := range m.reserved {
			reserved[name] += n
		}
		i := p.Get(name).Info()
		if i.Reserved != reserved[name] || i.Balance != i.Credited-i.Spent || i.Available != i.Balance-i.Reserved || i.Available != m.free() {
			p.t.Fatalf("%+v, want %+v with %d available", i, *m, m.free())
		}
		if i.Credited != m.credited || i.Spent != m.spent || m.next != p.Get(name).NextAt() {
			p.t.Fatalf("%+v, want %+v", i, *m)
		}
	}
	if p.Len() != len(p.models) {
		p.t.Fatalf("%d accounts, want %d", p.Len(), len(p.models))
	}
	p.Check(reserved, func(no int, format string, args ...any) {
		p.t.Fatalf("invariant %d: "+format, append([]any{no}, args...)...)
	})
}

// checkHistory verifies that the entries of an account add up to its balance, each to that of the one before.
func (p *program) checkHistory(name string) {
	p.t.Helper()
	a := p.Get(name)
	all := p.history(a, 1+p.r.IntN(20))
	if len(all) > 0 && all[0].Balance != a.Balance() {
		p.t.Fatalf("the newest entry of %q has a balance of %d, it is %d", name, all[0].Balance, a.Balance())
	}
	for i := 1; i < len(all); i++ {
		if all[i].Balance+all[i-1].Amount != all[i-1].Balance || all[i].At >= all[i-1].At {
			p.t.Fatalf("the entry %+v comes before %+v", all[i], all[i-1])
		}
	}
}

// TestRandomProgramsAddUp makes random calls at three accounts, over crashes at any time, and compares them with a
// model after each.
func TestRandomProgramsAddUp(t *testing.T) {
	total := program{}
	programs := uint64(300)
	if testing.Short() {
		programs = 40
	}
	for seed := range programs {
		p := &program{bank: newBank(t), r: rand.New(rand.NewPCG(seed, 29)), models: map[string]*model{}, kept: map[string]*model{}, looks: map[string]Lookup{}}
		p.bank.saved = func() { p.kept = copied(p.models) }
		p.once(t, seed, 250)
		total.known, total.refused, total.refilled = total.known+p.known, total.refused+p.refused, total.refilled+p.refilled
		total.stale, total.lost = total.stale+p.stale, total.lost+p.lost
	}
	least := int(programs)
	if total.known < 4*least || total.refused < 4*least || total.refilled < 8*least || total.stale < least || total.lost < least {
		t.Errorf("%d ids were known, %d moves refused, %d accounts refilled, %d look-ups stale, %d accounts changed by a crash", total.known, total.refused, total.refilled, total.stale, total.lost)
	}
}

func (p *program) once(t *testing.T, seed uint64, steps int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for range steps {
		switch p.r.IntN(30) {
		case 0:
			p.advance(time.Duration(p.r.Int64N(int64(3 * time.Minute))))
		case 1:
			p.advance(time.Duration(p.r.Int64N(int64(4 * time.Hour))))
		case 2, 3, 4:
			p.cut()
		case 5:
			p.crash()
		case 6:
			for _, name := range slices.Sorted(maps.Keys(p.models)) {
				p.checkHistory(name)
			}
		default:
			p.step([]string{"a", "b", "c"}[p.r.IntN(3)])
		}
		p.check()
	}
}

// crash takes back what was not cut.
func (p *program) crash() {
	for name, m := range p.models {
		if was := p.kept[name]; was == nil || was.credited != m.credited || was.spent != m.spent {
			p.lost++
		}
	}
	p.models = copied(p.kept)
	p.recover()
	for name, m := range p.models {
		for _, n := range m.reserved {
			p.Get(name).Reserve(n)
		}
	}
}
