package ids

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/storage"
)

func TestAnIDOfContentIsThatOfAllOfIt(t *testing.T) {
	header := func(name, value string) []storage.Header {
		return []storage.Header{{Name: []byte(name), Value: []byte(value)}}
	}
	all := map[string]string{}
	for name, id := range map[string]string{
		"one":         OfContent("q", "k", header("a", "b"), []byte("payload")),
		"queue":       OfContent("other", "k", header("a", "b"), []byte("payload")),
		"key":         OfContent("q", "other", header("a", "b"), []byte("payload")),
		"header":      OfContent("q", "k", header("a", "other"), []byte("payload")),
		"payload":     OfContent("q", "k", header("a", "b"), []byte("other")),
		"no header":   OfContent("q", "k", nil, []byte("payload")),
		"other parts": OfContent("q", "k", header("ab", ""), []byte("payload")),
		"named":       Named("payload"),
	} {
		if same, is := all[id]; is {
			t.Errorf("%s and %s have the same id", name, same)
		}
		all[id] = name
	}
	if again := OfContent("q", "k", header("a", "b"), []byte("payload")); all[again] != "one" {
		t.Error("the same content has two ids")
	}
}

// model is what the ids of a random program should be.
type model struct {
	t        *testing.T
	tab      Table
	store    *storage.Memory
	w        writes.Batch
	queues   map[uint32]*Scope
	last     uint32
	messages byte
	first    map[key]storage.DedupEntry // deduplication ids
	owners   map[key]storage.DedupEntry
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{
		t: t, store: storage.NewMemory(), w: writes.Batch{Batch: &storage.Batch{}, Number: 1, Now: 1_700_000_000e9},
		queues: map[uint32]*Scope{}, first: map[key]storage.DedupEntry{}, owners: map[key]storage.DedupEntry{},
	}
	m.tab.Reset()
	m.add("a")
	m.add("b")
	return m
}

// add adds a queue, or gives one another number.
func (m *model) add(name string) {
	m.last++
	m.queues[m.last] = &Scope{Queue: &Queue{}, Number: m.last, Name: name, Window: 10 * time.Second, Keep: time.Minute}
}

func (m *model) commit() {
	m.t.Helper()
	if err := m.store.Commit(m.w.Batch, true); err != nil {
		m.t.Fatal(err)
	}
	m.w.Reset()
	m.w.Number++
}

// restart recovers the ids of what is committed.
func (m *model) restart() {
	m.t.Helper()
	m.commit()
	m.tab.Reset()
	for _, q := range m.queues {
		*q.Queue = Queue{}
	}
	err := m.tab.Recover(m.store, m.w.Number, func(no uint32) (Scope, bool) {
		q := m.queues[no]
		if q == nil {
			return Scope{}, false
		}
		return *q, true
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// purge gives a queue another number.
func (m *model) purge(q *Scope) {
	m.tab.Forget(*q)
	prefix := storage.AppendQueuePrefix(nil, q.Number)
	m.w.DeleteRange(storage.Dedup, prefix, storage.After(prefix))
	delete(m.queues, q.Number)
	m.add(q.Name)
}

func (m *model) message() storage.ID {
	m.messages++
	return storage.ID{m.messages, 1}
}

// ask compares what is known of an id with the model. looks are those of before, which may be stale. It returns those
// that were used.
func (m *model) ask(q *Scope, id string, dedup, owner *Lookup) (*Lookup, *Lookup) {
	m.t.Helper()
	k := key{q.Number, id}
	got, err := m.tab.Repeated(q.Number, id, dedup, q.Window, m.w.Now)
	if err == ErrStale { //nolint:errorlint // never wrapped
		m.commit()
		dedup = m.tab.View().Repeated(m.store, q.Name, id, m.w.Number-1)
		got, err = m.tab.Repeated(q.Number, id, dedup, q.Window, m.w.Now)
	}
	want := m.first[k]
	if want.At+int64(q.Window) <= m.w.Now {
		want = storage.DedupEntry{}
	}
	if err != nil || got != want.ID {
		m.t.Fatalf("the id %s of %s is that of %s, want %s: %v", id, q.Name, got, want.ID, err)
	}
	entry, err := m.tab.Owner(q.Number, id, owner)
	if err == ErrStale { //nolint:errorlint // never wrapped
		m.commit()
		owner = m.tab.View().Owner(m.store, q.Name, id, m.w.Number-1)
		entry, err = m.tab.Owner(q.Number, id, owner)
	}
	if err != nil || entry != m.owners[k] {
		m.t.Fatalf("the owner of %s of %s is %+v, want %+v: %v", id, q.Name, entry, m.owners[k], err)
	}
	return dedup, owner
}

func TestRandomProgramsKnowTheirIDs(t *testing.T) {
	stale, dropped := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible on purpose
		m := newModel(t)
		type asked struct {
			q             *Scope
			id            string
			dedup, unique *Lookup
		}
		var before []asked
		for range 400 {
			q := m.queues[m.last-uint32(rng.IntN(2))]
			for q == nil {
				q = m.queues[1+rng.Uint32N(m.last)]
			}
			id := fmt.Sprint("id", rng.IntN(5))
			k := key{q.Number, id}
			switch n := rng.IntN(20); {
			case n < 4:
				if e := m.first[k]; e.At+int64(q.Window) <= m.w.Now {
					m.first[k] = storage.DedupEntry{ID: m.message(), At: m.w.Now}
					m.tab.Add(*q, id, m.first[k].ID, m.w)
				}
			case n < 7 && m.owners[k] == storage.DedupEntry{}:
				m.owners[k] = storage.DedupEntry{ID: m.message(), At: m.w.Now, Key: "key"}
				m.tab.Take(*q, id, m.owners[k].ID, "key", m.w)
			case n < 9 && m.owners[k] != storage.DedupEntry{}:
				delete(m.owners, k)
				m.tab.Free(q.Number, id, m.w)
			case n == 9:
				m.commit()
			case n == 10 && rng.IntN(4) == 0:
				m.restart()
			case n == 11 && rng.IntN(4) == 0:
				m.purge(q)
			case n < 15:
				m.w.Now += rng.Int64N(3e9)
				dropped += m.tab.Expire(m.w, m.w.Number-1, rng.IntN(10))
			case n < 17 && len(before) > 0: // with a look-up of long ago
				a := before[rng.IntN(len(before))]
				if m.queues[a.q.Number] == a.q {
					if d, u := m.ask(a.q, a.id, a.dedup, a.unique); d != a.dedup || u != a.unique {
						stale++
					}
				}
			default:
				a := asked{q: q, id: id}
				a.dedup, a.unique = m.ask(q, id, nil, nil)
				before = append(before, a)
			}
		}
	}
	if stale < 100 || dropped < 1000 {
		t.Errorf("%d look-ups were stale, %d ids and generations were dropped", stale, dropped)
	}
}

func TestRecordsOfEndsAreDroppedAfterTheirPeriod(t *testing.T) {
	m := newModel(t)
	q := m.queues[1]
	begin := m.w.Now
	k := m.tab.PutEnd(*q, storage.ID{1}, &storage.Result{Value: []byte("v"), At: begin}, m.w)
	m.commit()
	if v, err := m.store.Get(storage.Results, k); err != nil || len(v) == 0 || len(q.Ends()) != 1 {
		t.Fatalf("%q, %v, generations %v", v, err, q.Ends())
	}
	m.restart()
	if len(q.Ends()) != 1 || m.tab.NextAt() != begin+2*int64(q.Keep) {
		t.Errorf("generations %v, the first ends %v after its beginning", q.Ends(), time.Duration(m.tab.NextAt()-begin))
	}
	q.Keep *= 2
	m.tab.Renew(*q)
	if m.w.Now = m.tab.NextAt(); m.w.Now != begin+2*int64(q.Keep) {
		t.Errorf("with a longer period it ends %v after its beginning", time.Duration(m.w.Now-begin))
	}
	m.tab.Expire(m.w, m.w.Number, 1)
	m.commit()
	if v, err := m.store.Get(storage.Results, k); err == nil || len(q.Ends()) != 0 {
		t.Errorf("a record is left: %q, generations %v", v, q.Ends())
	}
}

func TestARedriveLooksUpUniqueIDsWhereMessagesGo(t *testing.T) {
	m := newModel(t)
	m.tab.Take(*m.queues[2], "id", storage.ID{9}, "key", m.w)
	m.commit()
	m.w.Now += recent.Age
	m.tab.Expire(m.w, 1, 10)
	dead := &storage.Message{Dead: &storage.Dead{Queue: "b"}}
	dead.Unique = "id"
	for _, tt := range []struct {
		to    string
		queue uint32
		owner storage.ID
	}{{"", 2, storage.ID{9}}, {"a", 1, storage.ID{}}} {
		o := &Owners{View: m.tab.View(), To: tt.to, Seen: 1}
		if err := o.LookUp(m.store, storage.ID{3}, dead); err != nil {
			t.Fatal(err)
		}
		if e, err := m.tab.Owner(tt.queue, "id", o.Of(storage.ID{3})); err != nil || e.ID != tt.owner {
			t.Errorf("to %q: the owner is %s, want %s; %v", tt.to, e.ID, tt.owner, err)
		}
	}
	if err := (*Owners)(nil).LookUp(m.store, storage.ID{3}, dead); err != nil {
		t.Error(err)
	}
}
