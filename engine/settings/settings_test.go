package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

// write commits a batch to a store, and empties it.
func write(t *testing.T, store *storage.Memory, b *storage.Batch) {
	t.Helper()
	if err := store.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	b.Reset()
}

func TestTheRuntimeConfigurationIsBounded(t *testing.T) {
	store, l := storage.NewMemory(), limits.Default()
	l.Values, l.ValueBytes = 3, 20
	var v Values
	var b storage.Batch
	set := func(key, value string) (err error) {
		v, err = v.With(map[string]string{key: value}, &l, &b)
		return err
	}
	for _, s := range []struct {
		name, key, value string
		want             error
	}{
		{"the first", "a", "1", nil}, {"the second", "b", "2", nil}, {"up to the number", "c", "3", nil},
		{"one too many", "d", "4", refusals.ErrInvalid},
		{"another value of one that is there", "c", "33", nil},
		{"up to the bytes", "a", strings.Repeat("x", 14), nil},
		{"a byte too many", "b", "22", refusals.ErrInvalid},
		{"no name", "", "1", refusals.ErrInvalid},
		{"a long name", strings.Repeat("n", KeyMax+1), "1", refusals.ErrTooBig},
		{"a long value", "b", strings.Repeat("n", ValueMax+1), refusals.ErrTooBig},
	} {
		if err := set(s.key, s.value); !errors.Is(err, s.want) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	write(t, store, &b)
	var err error
	if v, err = ReadValues(store); err != nil || fmt.Sprint(v.Keys("", "", 9)) != "[a b c]" {
		t.Fatalf("%v are read, %v", v.Keys("", "", 9), err)
	}
	if err := set("a", strings.Repeat("x", 15)); !errors.Is(err, refusals.ErrInvalid) {
		t.Errorf("after a restart, a byte too many: %v", err)
	}
	before := v
	var n int
	if v, n = v.Without([]string{"a", "b", "none"}, &b); n != 2 {
		t.Errorf("%d are deleted", n)
	}
	if _, is := before.Get("a"); !is {
		t.Error("a change has changed the configuration of before")
	}
	if err := set("d", strings.Repeat("x", 16)); err != nil {
		t.Errorf("after deletions: %v", err)
	}
	write(t, store, &b)
	if v, err = ReadValues(store); err != nil || fmt.Sprint(v.Keys("", "", 9)) != "[c d]" {
		t.Errorf("%v are read, %v", v.Keys("", "", 9), err)
	}
}

func TestValuesAreListedInOrder(t *testing.T) {
	l := limits.Default()
	v, err := Values{}.With(map[string]string{"b:2": "", "a": "", "b:1": "", "c": "", "b:3": ""}, &l, &storage.Batch{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix, after string
		count         int
		want          []string
	}{
		{"", "", 10, []string{"a", "b:1", "b:2", "b:3", "c"}}, {"b:", "", 10, []string{"b:1", "b:2", "b:3"}},
		{"b:", "b:1", 10, []string{"b:2", "b:3"}}, {"b:", "b:1", 1, []string{"b:2"}}, {"b:", "c", 10, nil}, {"", "c", 10, nil}, {"x", "", 10, nil},
		{"b:", "a", 10, []string{"b:1", "b:2", "b:3"}},
	} {
		if got := v.Keys(c.prefix, c.after, c.count); !slices.Equal(got, c.want) {
			t.Errorf("prefix %q after %q, %d at most: %v, want %v", c.prefix, c.after, c.count, got, c.want)
		}
	}
}

func TestUsersAreBounded(t *testing.T) {
	store := storage.NewMemory()
	u, err := ReadUsers(store)
	if err != nil {
		t.Fatal(err)
	}
	var b storage.Batch
	set := func(lines map[string]string) error { return u.Set(lines, &b) }
	for size, ok := range map[int]bool{UserLineMax: true, UserLineMax + 1: false} {
		if err := set(map[string]string{"long": strings.Repeat("x", size)}); ok != (err == nil) || err != nil && !errors.Is(err, refusals.ErrTooBig) {
			t.Errorf("a line of %d bytes: %v", size, err)
		}
	}
	if err := set(map[string]string{"long": ""}); err != nil {
		t.Error(err)
	}
	most := map[string]string{}
	for i := range UsersMax {
		most[fmt.Sprint(i)] = "x"
	}
	if err := set(most); err != nil {
		t.Errorf("%d users: %v", UsersMax, err)
	}
	if err := set(map[string]string{"more": "x"}); !errors.Is(err, refusals.ErrTooBig) {
		t.Errorf("one more: %v", err)
	}
	if err := set(map[string]string{"more": "x", "0": ""}); err != nil {
		t.Errorf("one in the place of another: %v", err)
	}
	lines := map[string]string{}
	for i := range UsersBytesMax / UserLineMax {
		lines[fmt.Sprint(1+i)] = strings.Repeat("x", UserLineMax-50)
	}
	if err := set(lines); err != nil {
		t.Errorf("%d long lines: %v", len(lines), err)
	}
	write(t, store, &b)
	lines["5000"] = strings.Repeat("x", UserLineMax)
	if err := set(lines); !errors.Is(err, refusals.ErrTooBig) || b.Len() != 0 {
		t.Errorf("one more: %v, %d records", err, b.Len())
	}
	again, err := ReadUsers(store)
	if err != nil || !maps.Equal(again.lines, u.lines) || again.bytes != u.bytes || again.version != u.version || len(u.Names()) != UsersMax {
		t.Errorf("%d users with %d bytes of version %d are read, want %d with %d of %d; %v", len(again.lines), again.bytes, again.version, len(u.lines), u.bytes, u.version, err)
	}
}

func TestActsAreKeptNewestFirstAndInNumber(t *testing.T) {
	store, at := storage.NewMemory(), time.Unix(1_700_000_000, 0)
	var l Acts
	var b storage.Batch
	const more = 5
	for i := range ActsMax + more {
		l.Keep(Act{User: "anna", Command: "X", After: fmt.Sprint(i)}, at, &b)
		write(t, store, &b)
	}
	for range 2 {
		for _, tt := range []struct {
			cursor uint64
			count  int
			want   string
		}{
			{0, 2, "[1005 1004] 1004"}, {1004, 2, "[1003 1002] 1002"}, {8, 2, "[7 6] 0"}, {8, 9, "[7 6] 0"}, {7, 1, "[6] 0"}, {6, 1, "[] 0"}, {3, 1, "[] 0"},
			{5000, 1, "[1005] 1005"},
		} {
			next, list := l.Page(tt.cursor, tt.count)
			var numbers []uint64
			for i := range list {
				numbers = append(numbers, list[i].Number)
			}
			if got := fmt.Sprint(numbers, next); got != tt.want {
				t.Errorf("page of %d from %d: %s, want %s", tt.count, tt.cursor, got, tt.want)
			}
		}
		var err error
		if l, err = ReadActs(store); err != nil || len(l.All()) != ActsMax || !l.All()[0].At.Equal(at) {
			t.Errorf("the store has %d acts, %v", len(l.All()), err)
		}
	}
}

func TestTextsOfActsAreBounded(t *testing.T) {
	var l Acts
	long := strings.Repeat("é", ActSettingMax)
	l.Keep(Act{User: long, Addr: long, Command: long, Object: long, Before: long, After: long}, time.Unix(0, 0), &storage.Batch{})
	a := l.All()[0]
	for _, text := range []string{a.User, a.Addr, a.Command, a.Object} {
		if text != long[:ActNameMax] {
			t.Errorf("kept %d bytes", len(text))
		}
	}
	if a.Before != long[:ActSettingMax] || a.After != a.Before {
		t.Errorf("kept %d and %d bytes", len(a.Before), len(a.After))
	}
}

func TestSettingsOfKeysMoveToAnotherNumber(t *testing.T) {
	store := storage.NewMemory()
	var s Keys
	var b storage.Batch
	stored := func(no uint32) map[string]uint32 {
		found := map[string]uint32{}
		prefix := storage.AppendStateKey(nil, storage.StateKey)
		it := store.Scan(storage.State, prefix, storage.After(prefix))
		defer it.Close()
		for ok := it.Seek(prefix); ok; ok = it.Next() {
			parts, _ := storage.ParseStateKey(it.Key())
			of, key, err := ParseKey(parts[1:])
			var set storage.Key
			if err != nil || set.Decode(it.Value()) != nil {
				t.Fatal(err)
			}
			if of == no {
				found[key] = set.Weight
			}
		}
		return found
	}
	set := func(key string, weight uint32, pinned bool) {
		s.Set(key, storage.Key{Weight: weight, Pinned: pinned, MaxDepth: uint64(weight)})
		own, _ := s.Of(key)
		s.Write(&b, 1, key, own)
	}
	set("a", 1, true)
	set("b", 2, true)
	set("free", 3, false)
	s.BeginMove("purge", 9)
	if moving, own := s.Moving("other"); !moving || own {
		t.Errorf("moving %v, for another %v", moving, own)
	}
	s.MoveNext(&b)
	set("a", 4, true)
	set("free", 5, false)
	s.Unset("b")
	s.Delete(&b, 1, "b")
	for s.MoveNext(&b) {
	}
	write(t, store, &b)
	if got := stored(1); !maps.Equal(got, map[string]uint32{"a": 4, "free": 5}) {
		t.Errorf("under the first number there are %v", got)
	}
	if got := stored(9); got["a"] != 4 || got["b"] != 0 {
		t.Errorf("under the next number there are %v", got)
	}
	if no := s.EndMove(); no != 9 {
		t.Errorf("moved to %d", no)
	}
	DeleteKeys(&b, 1)
	write(t, store, &b)
	if s.DropUnpinned(); s.Len() != 1 || !s.AnyMaxDepth() || len(stored(1)) != 0 {
		t.Errorf("%d settings are left in memory, %v under the first number", s.Len(), stored(1))
	}
	s.Unset("a")
	s.BeginMove("purge", 10)
	s.Abandon(&b)
	if moving, _ := s.Moving("purge"); moving || s.AnyMaxDepth() {
		t.Error("a move goes on, or a key is bounded that has no settings")
	}
}

func TestAKeyIsGivenWhatItMayHave(t *testing.T) {
	l := limits.Default()
	for _, o := range []KeyOptions{{Weight: new(uint32(0))}, {Weight: new(l.Weight + 1)}, {MaxDepth: new(uint64(1 << 63))}} {
		set := storage.Key{Weight: 7}
		if err := o.Apply(&set, &l); !errors.Is(err, refusals.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	set := storage.Key{Weight: 7, MaxDepth: 5, Pinned: true}
	if err := (&KeyOptions{Weight: new(l.Weight)}).Apply(&set, &l); err != nil || set != (storage.Key{Weight: l.Weight, MaxDepth: 5, Pinned: true}) {
		t.Errorf("%+v, %v", set, err)
	}
}

func TestHoldsAreBoundedAndEnd(t *testing.T) {
	store := storage.NewMemory()
	var s Holds
	var b storage.Batch
	const most, now = 2, int64(5 * time.Second)
	for _, x := range []struct {
		key, over string
		d         time.Duration
		until     int64
		held      bool
	}{
		{"a", "", time.Minute, now + int64(time.Minute), true},
		{"a", "", time.Second, now + int64(time.Second), false},
		{"b", "", time.Second + 1, now + int64(time.Second+time.Millisecond), true},
		{"a", "", time.Hour, now + int64(time.Hour), true},
		{"c", "b", time.Minute, now + int64(time.Minute), true},
	} {
		until, over, held := s.Hold(x.key, now, x.d, most, &b)
		if until != x.until || over != x.over || held != x.held {
			t.Errorf("%s for %v: until %d, in place of %q, %v", x.key, x.d, until, over, held)
		}
	}
	write(t, store, &b)
	var again Holds
	n := 0
	if err := again.Read(store, func(key string, until int64) {
		n++
		if s.byKey[key].until != until {
			t.Errorf("%s is read until %d", key, until)
		}
	}); err != nil || n != 2 || again.Check(most) != nil {
		t.Errorf("%d holds are read, %v", n, err)
	}
	if key, until, ok := again.First(); key != "c" || until != now+int64(time.Minute) || !ok {
		t.Errorf("the first to end is %q, %d", key, until)
	}
	if again.Check(1) == nil {
		t.Error("one hold more than is allowed is not found")
	}
	if !again.End("c", &b) || again.End("c", &b) || again.Check(most) != nil {
		t.Error("a hold ends once")
	}
	again.ends.Remove(again.byKey["a"])
	if again.Check(most) == nil {
		t.Error("a hold without an end is not found")
	}
}
