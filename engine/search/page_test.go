package search

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/storage"
)

// messages is a store with the messages of two queues, of three fairness keys each, in the order of the store. Some have
// failed, and some of the ids end with a byte that has no successor.
func messages(t *testing.T, n int) (store *storage.Memory, of map[uint32][]storage.MessageKey) {
	t.Helper()
	store, of = storage.NewMemory(), map[uint32][]storage.MessageKey{}
	var b storage.Batch
	for i := range n {
		mk := storage.MessageKey{Queue: uint32(7 + i%2), Key: fmt.Sprint("k", i%3), Rank: uint8(i % 10), ID: at(int64(i + 1))}
		if i%4 == 0 {
			mk.ID[len(mk.ID)-1] = 0xff
		}
		m := storage.Message{Payload: []byte(fmt.Sprint(i))}
		m.MemberOf = uint64(i % 5)
		m.Died = i%2 == 0 && i%5 == 3
		if i%3 == 0 {
			m.Throttles = []string{"t"}
		}
		b.Put(storage.Messages, mk.Append(nil), m.Append(nil))
		if i%3 == 0 {
			a := storage.Attempt{Attempt: 2, FirstFailedAt: 1, LastFailedAt: int64(i), Error: fmt.Sprint("error ", string(rune('a'+i%7)))}
			b.Put(storage.Attempts, mk.Append(nil), a.Append(nil))
		}
		of[mk.Queue] = append(of[mk.Queue], mk)
	}
	for _, list := range of {
		slices.SortFunc(list, func(a, b storage.MessageKey) int { return bytes.Compare(a.Append(nil), b.Append(nil)) })
	}
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	return store, of
}

// pages reads all pages and returns the messages that are found. set changes each page before it is read.
func pages(t *testing.T, store storage.Reader, queue uint32, key string, limit int, set func(*Page)) (found []storage.MessageKey) {
	t.Helper()
	var cursor []byte
	for n := 0; ; n++ {
		p := NewPage(queue, key, cursor, limit)
		set(&p)
		err := p.Read(store, func(r *Record) (int, error) {
			if r.Retried != (r.Attempt.Attempt == 2) || r.Retried != (len(r.Message.Throttles) == 1) {
				t.Errorf("%v has the attempts of another message", r.Key)
			}
			found = append(found, r.Key)
			return len(r.Value), nil
		})
		if err != nil || p.Looked > limit || n > 1000 {
			t.Fatalf("page %d has looked at %d messages: %v", n, p.Looked, err)
		}
		if p.Next == nil {
			return found
		}
		at, ok := ParseCursor(queue, Cursor(p.Next))
		if cursor = at; !ok {
			t.Fatalf("%x is no cursor", p.Next)
		}
	}
}

// A walk sees each message that is selected once, in pages of any size.
func TestAWalkSeesEachMessageOnce(t *testing.T) {
	store, of := messages(t, 120)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 200 {
		key, since := "", int64(0)
		if rng.IntN(2) == 0 {
			key = fmt.Sprint("k", rng.IntN(3))
		}
		set, members := func(*Page) {}, false
		switch rng.IntN(4) {
		case 0:
			since = rng.Int64N(120)
			set = func(p *Page) { p.Filter = &Filter{Since: since} }
		case 1:
			set = func(p *Page) { p.Most = 1 + int(rng.IntN(3)) }
		case 2:
			members = true
			set = func(p *Page) { p.Members = map[uint64]struct{}{3: {}} }
		}
		var want []storage.MessageKey
		for _, mk := range of[7] {
			n := mk.ID.Nanos()/int64(time.Millisecond) - 1
			if (key == "" || mk.Key == key) && n+1 >= since && (!members || n%5 == 3 && n%2 == 1) {
				want = append(want, mk)
			}
		}
		if got := pages(t, store, 7, key, 1+rng.IntN(50), set); !slices.Equal(got, want) {
			t.Fatalf("key %q, since %d, members %v: %d messages, want %d", key, since, members, len(got), len(want))
		}
	}
}

// A page that groups failures ends before the first message that would be a group too many.
func TestAPageOfFailuresFindsNoMessages(t *testing.T) {
	store, of := messages(t, 120)
	failed := int64(0)
	for _, mk := range of[7] {
		if (mk.ID.Nanos()/int64(time.Millisecond)-1)%3 == 0 {
			failed++
		}
	}
	counted := int64(0)
	var all []*causes.Groups
	if found := pages(t, store, 7, "", 9, func(p *Page) {
		p.Groups = &causes.Groups{Queue: "q"}
		all = append(all, p.Groups)
	}); found != nil {
		t.Errorf("%d messages are found", len(found))
	}
	for _, groups := range all {
		for _, g := range groups.List() {
			counted += g.Count
		}
	}
	if counted != failed || failed == 0 {
		t.Errorf("%d failures are counted, want %d", counted, failed)
	}
}

func TestARangeTellsWhetherThereIsMore(t *testing.T) {
	store, of := messages(t, 40)
	prefix := storage.AppendQueuePrefix(nil, 8)
	for n := 1; n <= len(of[8])+1; n++ {
		seen := 0
		more, err := Messages(store, prefix, storage.After(prefix), func(*Record) (bool, error) {
			seen++
			return seen < n, nil
		})
		if want := min(n, len(of[8])); err != nil || seen != want || more != (n < len(of[8])) {
			t.Errorf("%d of %d messages are seen, more %v, %v", seen, want, more, err)
		}
	}
	it := OpenKeys(store)
	defer it.Close()
	for range 2 { // the iterators can be used again
		for _, key := range []string{"k1", "k0"} {
			got := 0
			from := storage.AppendKeyPrefix(nil, 8, key)
			if _, err := it.Range(from, func(r *Record) (bool, error) {
				got++
				return r.Key.Key == key, nil
			}); err != nil || got == 0 {
				t.Errorf("key %s: %d messages, %v", key, got, err)
			}
		}
	}
}

func TestAMessageIsFoundByItsKey(t *testing.T) {
	store, of := messages(t, 12)
	for _, mk := range of[7] {
		r, err := Message(store, mk)
		if err != nil || r == nil || r.Key != mk || r.Retried != (len(r.Message.Throttles) == 1) {
			t.Errorf("%v: %+v, %v", mk, r, err)
		}
		mk.ID[0]++
		if r, err := Message(store, mk); r != nil || err != nil {
			t.Errorf("%v: %+v, %v", mk, r, err)
		}
	}
}

func TestARecordSaysSinceWhenAndUntilWhenItWaits(t *testing.T) {
	store := storage.NewMemory()
	mk := storage.MessageKey{Queue: 7, Key: "k", ID: at(10)}
	made := mk.ID.Nanos()
	var b storage.Batch
	b.Put(storage.Scheduled, storage.AppendScheduledKey(nil, made+5, mk), nil)
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r              Record
		since, readyAt int64
		delayed        bool
	}{
		"new":                {Record{}, made, 0, false},
		"delayed":            {Record{Message: storage.Message{ReadyAt: made + 5}}, made + 5, made + 5, true},
		"due":                {Record{Message: storage.Message{ReadyAt: made + 4}}, made + 4, made + 4, false},
		"dead":               {Record{Message: storage.Message{Dead: &storage.Dead{DiedAt: made + 9}}}, made + 9, 0, false},
		"ready at once":      {Record{Retried: true, Message: storage.Message{ReadyAt: made + 5}, Attempt: storage.Attempt{LastFailedAt: made + 7}}, made + 7, 0, false},
		"failed and delayed": {Record{Retried: true, Attempt: storage.Attempt{LastFailedAt: made + 2, ReadyAt: made + 5}}, made + 5, made + 5, true},
	} {
		c.r.Key, c.r.ID = mk, mk.ID
		delayed, err := c.r.Delayed(store)
		if since, readyAt := c.r.Since(), c.r.ReadyAt(); since != c.since || readyAt != c.readyAt || delayed != c.delayed || err != nil {
			t.Errorf("%s: since %d, ready at %d, delayed %v, %v", name, since-made, readyAt, delayed, err)
		}
	}
}

func TestTheHoldersThatEndFirstAreNamed(t *testing.T) {
	var h Holders
	if h.Of("a"); h.Full() != 1 || !h.Named("b", "a") || h.Named("b") || h.Named() {
		t.Error("the leases of a throttle are not known by it")
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	const leases = 50
	for _, i := range rng.Perm(leases) {
		h.Add(Holder{ID: at(int64(i)), Until: time.UnixMilli(int64(i))}, uint64(i))
	}
	list := h.List(func(_ storage.ID, fence uint64) bool { return fence != 3 })
	if h.Count != leases || len(list) != HoldersMax-1 || list[2].ID != at(2) || list[3].ID != at(4) {
		t.Errorf("%d leases, %d are named: %v", h.Count, len(list), list)
	}
}
