package group

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/storage"
)

// commit applies the open batch of a model to a store, and opens the next one.
func (m *model) commit(store *storage.Memory) {
	m.t.Helper()
	if err := store.Commit(m.batch.Batch, true); err != nil {
		m.t.Fatal(err)
	}
	m.batch.Reset()
	m.batch.Number++
}

func TestWhatIsKnownOfAnEndedGroupIsForgottenAfterATime(t *testing.T) {
	store := storage.NewMemory()
	m := newModel(t, 0)
	begin := int64(1_700_000_000e9)
	m.batch.Now = begin
	g := m.tab.Open(storage.Group{Name: "g", OpenedAt: begin, Queue: "out"}, 0, []byte("message"), m.batch)
	if _, err := m.tab.Joinable("g", nil, begin); err != nil {
		t.Error(err)
	}
	m.tab.Seal(g, begin)
	if _, err := m.tab.Joinable("g", nil, begin); !errors.Is(err, ErrSealed) {
		t.Error(err)
	}
	m.tab.Finish(m.tab.Over(), storage.ID{7}, m.batch)
	want := func(when string, look *Lookup, known bool, fails error) {
		t.Helper()
		end, err := m.tab.Ended("g", look, m.batch.Now)
		if !errors.Is(err, fails) || (end != nil) != known || known && (end.Message != storage.ID{7} || InfoOf("g", end).State != StateDone) {
			t.Errorf("%s: %+v, %v", when, end, err)
		}
	}
	want("before the commit", nil, true, nil)
	m.commit(store)
	m.batch.Now += recent.Age
	m.tab.Drop(m.batch, 1, 100)
	want("without a look-up", nil, false, ErrStale)
	look := m.tab.Lookup("g", 1)(store)
	want("with a look-up", look, true, nil)
	if m.tab.Stale("g", look) || !m.tab.Stale("g", nil) {
		t.Error("a look-up of now is stale, or none is not")
	}
	m.reset()
	if err := m.tab.Recover(store, time.Hour, m.batch.Number); err != nil {
		t.Fatal(err)
	}
	want("a look-up from before a recovery", look, false, ErrStale)
	look = m.tab.Lookup("g", m.batch.Number)(store)
	want("a look-up from after it", look, true, nil)
	m.batch.Now = begin + int64(time.Hour)
	want("after the time", look, false, nil)
	if _, err := m.tab.Joinable("g", look, m.batch.Now); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if m.batch.Now = m.tab.NextAt(); m.batch.Now != begin+2*int64(time.Hour) {
		t.Errorf("records are dropped %v after the end", time.Duration(m.batch.Now-begin))
	}
	m.tab.Drop(m.batch, m.batch.Number, 100)
	m.commit(store)
	if value, err := storeHas(store); value != nil || err != nil {
		t.Errorf("a record is left: %q, %v", value, err)
	}
}

// storeHas returns a record that a store has.
func storeHas(store *storage.Memory) (value []byte, err error) {
	it := store.Scan(storage.State, nil, nil)
	defer it.Close()
	if it.Seek(nil) {
		value = bytes.Clone(it.Value())
	}
	return value, it.Err()
}

func TestMessagesStayInMemoryUntilTheStoreHasThem(t *testing.T) {
	m := newModel(t, 0)
	store := storage.NewMemory()
	content := storage.Message{Payload: []byte("x")}
	record := (&storage.GroupMessage{Queue: "out", Message: content.Append(nil)}).Append(nil)
	g := m.tab.Open(storage.Group{Name: "g"}, 0, record, m.batch)
	m.tab.messages.bytes += messagesMax // as if there were others
	m.tab.Drop(m.batch, m.batch.Number-1, 100)
	if _, read, err := m.tab.Message(g, store); read >= 0 || err != nil {
		t.Errorf("a message that the store does not have was read: %d, %v", read, err)
	}
	m.commit(store)
	m.tab.Drop(m.batch, m.batch.Number-1, 100)
	m.tab.messages.bytes -= messagesMax
	g.Done, g.Dead = 3, 2
	got, read, err := m.tab.Message(g, store)
	if read != len(record) || err != nil || got.Queue != "out" || string(got.Whole.Payload) != "x" {
		t.Errorf("%+v, %d bytes, %v", got, read, err)
	}
	var headers []string
	for _, h := range got.Whole.Headers {
		headers = append(headers, fmt.Sprintf("%s %s", h.Name, h.Value))
	}
	if want := []string{"fila-group g", "fila-group-done 3", "fila-group-dead 2"}; !slices.Equal(headers, want) {
		t.Errorf("headers %v, want %v", headers, want)
	}
	m.tab.CheckMembers(func(func(Member) bool) {}, func(no int, format string, args ...any) { t.Errorf("%d: "+format, append([]any{no}, args...)...) })
}

func TestAGroupThatCouldNotBeFinishedIsOverAgain(t *testing.T) {
	m := newModel(t, 0)
	g := m.tab.Open(storage.Group{Name: "g"}, 0, nil, m.batch)
	m.tab.Seal(g, 1)
	m.tab.Retry(m.tab.Over(), 10)
	if m.tab.NextAt() != 10 || m.tab.AnyOver() {
		t.Errorf("it is over at once, or at %d", m.tab.NextAt())
	}
	m.batch.Now = 9
	if m.tab.Drop(m.batch, 0, 100); m.tab.AnyOver() {
		t.Error("it is over too early")
	}
	m.batch.Now = 10
	if m.tab.Drop(m.batch, 0, 100); m.tab.Over() != g {
		t.Error("it is not over again")
	}
}

func TestAGroupExpires(t *testing.T) {
	m := newModel(t, 0)
	g := m.tab.Open(storage.Group{Name: "g", ExpireAt: 10}, 0, nil, m.batch)
	if m.tab.Expire(9) || m.tab.NextAt() != 10 || !m.tab.Expire(10) || m.tab.Expire(10) {
		t.Error("it expires too early, twice or not at all")
	}
	if i := g.Info(); i.State != StateCancelled || i.Error == "" || !i.EndedAt.Equal(time.Unix(0, 10)) {
		t.Errorf("%+v", i)
	}
}

// sweepOf begins the next page and returns what it reads.
func sweepOf(m *model) string {
	s := m.tab.NextPage()
	var of []uint64
	for n := range s.Members {
		of = append(of, n)
	}
	slices.Sort(of)
	return fmt.Sprintf("%d %v %s", s.Queue, of, s.Cursor)
}

func TestSweepsTakeTurns(t *testing.T) {
	m := newModel(t, 0)
	g, h := m.tab.begin(storage.Group{Name: "g"}, 0), m.tab.begin(storage.Group{Name: "h"}, 0)
	m.tab.Join(g, 1)
	m.tab.Join(g, 2)
	m.tab.Join(g, 3)
	m.tab.Join(h, 1)
	delete(m.queues, 3)
	m.tab.Detach(3)
	m.tab.Cancel(g, 1, "")
	if !m.tab.Sweeping(1) || !m.tab.Sweeping(2) || m.tab.Sweeping(3) {
		t.Error("not the queues of the members are swept")
	}
	for i, step := range []struct {
		page string
		end  func()
	}{
		{"1 [1] ", func() { m.tab.Swept([]byte("c")) }},
		{"2 [1] ", func() { m.tab.SweepAgain(0) }},
		{"1 [1] c", func() { m.tab.Cancel(h, 1, ""); m.tab.Swept(nil) }}, // another pass follows
		{"2 [1] ", func() { m.tab.SweptAway() }},
		{"1 [2] ", func() { m.tab.SweepAgain(5) }},
		{"1 [2] ", func() { m.tab.Swept(nil) }},
	} {
		if page := sweepOf(m); page != step.page || m.tab.SweepAt() < 1<<62 {
			t.Fatalf("page %d is %q, want %q; the next is at %d", i, page, step.page, m.tab.SweepAt())
		}
		step.end()
		if i == 4 && m.tab.SweepAt() != 5 {
			t.Errorf("a page that could not be read is read again at %d", m.tab.SweepAt())
		}
	}
	if m.tab.Sweeping(1) || m.tab.Sweeping(2) || m.tab.SweepAt() < 1<<62 {
		t.Error("a sweep has no end")
	}
	m.cut()
	m.restart()
	if !m.tab.Sweeping(1) || m.tab.Sweeping(3) {
		t.Error("the members of cancelled groups are not swept after a restart")
	}
}
