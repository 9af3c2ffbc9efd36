package limits

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/storage"
)

// names returns so many different names.
func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

func TestWhatAProducerSaysIsWithinTheLimits(t *testing.T) {
	l := Default()
	long := strings.Repeat("x", max(l.Throttle, l.Key)+1)
	for name, c := range map[string]struct {
		meta   storage.Meta
		charge *int64
		want   error
	}{
		"nothing":              {},
		"as many as there are": {meta: storage.Meta{Throttles: names(l.Throttles), Budgets: names(credit.BudgetsMax)}, charge: new(int64(credit.ChargeMax))},
		"repetitions":          {meta: storage.Meta{Throttles: append(names(l.Throttles), "0"), Budgets: append(names(credit.BudgetsMax), "0")}, charge: new(int64(0))},
		"throttles":            {meta: storage.Meta{Throttles: names(l.Throttles + 1)}, want: refusals.ErrTooBig},
		"budgets":              {meta: storage.Meta{Budgets: names(credit.BudgetsMax + 1)}, want: refusals.ErrTooBig},
		"no throttle":          {meta: storage.Meta{Throttles: []string{"a", ""}}, want: refusals.ErrInvalid},
		"no budget":            {meta: storage.Meta{Budgets: []string{"a", ""}}, want: refusals.ErrInvalid},
		"a long throttle":      {meta: storage.Meta{Throttles: []string{long}}, want: refusals.ErrTooBig},
		"a long budget":        {meta: storage.Meta{Budgets: []string{long}}, want: refusals.ErrTooBig},
		"a negative charge":    {charge: new(int64(-1)), want: refusals.ErrInvalid},
		"a large charge":       {charge: new(int64(credit.ChargeMax + 1)), want: refusals.ErrInvalid},
	} {
		if err := l.CheckMeta(&c.meta, c.charge); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestHeadersAreWithinTheLimits(t *testing.T) {
	l := Default()
	header := func(name, value int) storage.Header {
		return storage.Header{Name: make([]byte, name), Value: make([]byte, value)}
	}
	for name, c := range map[string]struct {
		headers []storage.Header
		want    error
	}{
		"none":         {},
		"the largest":  {slices.Repeat([]storage.Header{header(l.HeaderName, l.HeaderValue), header(1, 0)}, l.Headers/2), nil},
		"one too many": {slices.Repeat([]storage.Header{header(1, 0)}, l.Headers+1), refusals.ErrTooBig},
		"no name":      {[]storage.Header{header(1, 1), header(0, 1)}, refusals.ErrInvalid},
		"a long name":  {[]storage.Header{header(l.HeaderName+1, 0)}, refusals.ErrTooBig},
		"a long value": {[]storage.Header{header(1, l.HeaderValue+1)}, refusals.ErrTooBig},
	} {
		if err := l.CheckHeaders(c.headers); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestRepetitionsAreDropped(t *testing.T) {
	shared := []string{"a", "b", "a", "c", "b"}
	meta := storage.Meta{Throttles: shared, Budgets: []string{"x", "y"}}
	Once(&meta)
	if !slices.Equal(meta.Throttles, []string{"a", "b", "c"}) || !slices.Equal(meta.Budgets, []string{"x", "y"}) || shared[2] != "a" {
		t.Errorf("%q, %q; the list that others share is %q", meta.Throttles, meta.Budgets, shared)
	}
}
