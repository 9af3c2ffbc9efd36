package failures

import (
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

func TestTheLastFailuresAreListed(t *testing.T) {
	var f *Failures
	if f.Current() != nil || f.History() != nil || Stored(f.Parts()) != nil {
		t.Error("a message that has not failed has failures")
	}
	var lists [][]storage.Failure
	for i := range Max + 3 {
		f = f.Add(storage.Failure{At: int64(i + 1), Error: strings.Repeat("e", ErrorMax+i), Consumer: strings.Repeat("c", 2*NameMax)}, "cause")
		lists = append(lists, slices.Clone(f.List))
		if first := max(i-Max+2, 1); len(f.List) != min(i+1, Max) || f.List[0].At != int64(first) || len(f.Text) != ErrorMax+i || f.Cause != "cause" {
			t.Fatalf("after %d failures: %d from %d, an error of %d bytes", i+1, len(f.List), f.List[0].At, len(f.Text))
		}
	}
	if f.First != 1 || f.Last != Max+3 || f.Current() != f {
		t.Errorf("the first was at %d, the last at %d", f.First, f.Last)
	}
	for _, one := range f.List {
		if len(one.Error) > ErrorMax || len(one.Consumer) > NameMax {
			t.Errorf("an error of %d bytes, a consumer of %d", len(one.Error), len(one.Consumer))
		}
	}
	stored := Stored(f.Parts())
	if !Same(stored, f) || !slices.Equal(stored.List, f.List) || stored.First != f.First || stored.Last != f.Last {
		t.Error("a record has other failures")
	}
	kept := f.List
	h := f.History()
	if h.Current() != nil || !slices.Equal(h.List, kept) || Same(h, f) || Same(nil, f) {
		t.Errorf("another queue gets %+v", h)
	}
	if h = h.Add(storage.Failure{At: 99}, ""); h.First != 99 || len(h.List) != Max || !slices.Equal(kept, lists[len(lists)-1]) {
		t.Errorf("a failure there has changed what connections read, or is the first at %d", h.First)
	}
}
