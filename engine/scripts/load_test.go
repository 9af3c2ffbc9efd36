package scripts

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// script is a hook with a source, whose version is the same, and which notes why its decisions were rejected.
type script struct {
	hook.Hook
	kind   hook.Kind
	source string
	why    string
}

func (s *script) Kind() hook.Kind                { return s.kind }
func (s *script) Source() string                 { return s.source }
func (s *script) Version() string                { return s.source }
func (s *script) Rejected(_ time.Time, w string) { s.why = w }

// loader compiles what has no error as its source.
type loader struct{ err error }

func (l loader) Load(_ hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return &script{kind: kind, source: source}, l.err
}

func (l loader) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return &script{kind: kind, source: source}, l.err
}

func TestASourceIsCompiledWithinItsBounds(t *testing.T) {
	why := errors.New("line 1")
	for _, x := range []struct {
		l      hook.Loader
		source string
		want   error
	}{
		{loader{}, "abc", nil}, {loader{}, "abcd", refusals.ErrTooBig}, {nil, "a", errNoScripts}, {loader{why}, "a", refusals.ErrScript}, {loader{why}, "a", why},
		{loader{hook.ErrBusy}, "a", refusals.ErrBusy}, {loader{hook.ErrGone}, "a", refusals.ErrClientGone},
	} {
		h, err := Compile(x.l, hook.Caller{}, hook.OnFailure, x.source, 3)
		if !errors.Is(err, x.want) || (err == nil) != (h != nil) {
			t.Errorf("%v %q: %v, want %v", x.l, x.source, err, x.want)
		}
	}
}

func TestAScriptThatDoesNotCompileAnyMoreMakesSafeDecisions(t *testing.T) {
	if h, err := Restore(loader{}, hook.OnEnqueue, "a", 3); err != nil || h.Version() != "a" {
		t.Fatal(err)
	}
	h, err := Restore(loader{errors.New("line 1")}, hook.OnEnqueue, "a", 3)
	if !errors.Is(err, refusals.ErrScript) || h.Source() != "a" || h.Version() != "" || !h.Failing() {
		t.Errorf("%v, %+v", err, h)
	}
	d, fault := h.OnEnqueue(time.Time{}, nil, nil, hook.Bounds{})
	if !errors.Is(fault, refusals.ErrScript) || d.Key != hook.DefaultKey || !strings.Contains(h.Stats(time.Time{}).LastError, "line 1") {
		t.Errorf("it decides %+v, %v", d, fault)
	}
}

func TestARejectionSaysWhatTheQueueCannotFollow(t *testing.T) {
	for _, x := range []struct {
		r    Rejection
		want string
	}{
		{Rejection{Field: "priority", Value: 3}, "result field 'priority' is 3, the queue is ordered and ignores it"},
		{Rejection{Field: "delay_ms", Value: 3, TTL: 2 * time.Millisecond}, "result field 'delay_ms' is 3, it must be less than the time to live of the message, 2 ms"},
	} {
		s := &script{}
		x.r.Hook = s
		if x.r.Report(); s.why != x.want {
			t.Errorf("%q, want %q", s.why, x.want)
		}
	}
}

// The source that a queue had before there were histories is the first of its history.
func TestAHistoryBeginsWithTheHookThatIsReplaced(t *testing.T) {
	store, table := storage.NewMemory(), &Table{}
	var b storage.Batch
	old, first, second := &script{source: "old"}, &script{source: "first"}, &script{source: "second"}
	table.Loaded(&b, "q", first, old, "anna", 7, 1<<20)
	table.Loaded(&b, "q", second, first, "", 8, 1<<20)
	table.Loaded(&b, "gone", second, nil, "", 9, 1<<20)
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	again, stale := &Table{}, 0
	if err := again.ReadAll(store, func(queue string) bool { return queue == "q" }, func([]string) { stale++ }); err != nil || stale != 1 {
		t.Fatal(err, stale)
	}
	check(t, again)
	now := again.Of(Name("q", hook.OnEnqueue))
	h := NewHistory(now)
	if err := h.Read(store); err != nil || !h.Has(now) || h.Has(now[1:]) {
		t.Fatal(err)
	}
	list := h.Shown("second")
	if len(list) != 3 || list[0].Source != "second" || !list[0].Current || list[1].User != "anna" || !list[1].LoadedAt.Equal(time.Unix(0, 7)) || list[2].Source != "old" || !list[2].LoadedAt.IsZero() {
		t.Errorf("the history is %+v", list)
	}
	again.Drop(&b, "q")
	if err := store.Commit(&b, false); err != nil || again.Bytes() != 0 {
		t.Fatal(err)
	}
	if err := h.Read(store); err != nil || h.Has(now) || len(h.Shown("second")) != 0 {
		t.Errorf("what is gone from the store is shown: %+v, %v", h.Shown(""), err)
	}
}
