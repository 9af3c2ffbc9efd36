// Package settings has what operators set while a broker runs, beside its queues and throttles: the runtime configuration, the
// users of a cluster, settings of fairness keys, holds of throttle keys, and the log of what administrators have changed.
// Each is checked, kept in memory, and written into the batch that is given; a refused change changes nothing. The
// package knows no queues, keys or throttles, and no transactions. Errors are those of package refusals.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/ordered"
	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

// Bounds of one key and one value of the runtime configuration. Limits bound all of
// them together.
const (
	KeyMax   = 512     // bytes
	ValueMax = 8 << 10 // bytes
)

// Values is the runtime configuration: names and values that scripts read with fila.get. It is immutable: a change makes
// another one, in O(log n). The zero value is empty.
type Values struct {
	all   ordered.Map[string]
	bytes int // of names and values
}

// Get returns a value, and whether it exists.
func (v Values) Get(key string) (string, bool) { return v.all.Get(key) }

// Len returns the number of values.
func (v Values) Len() int { return v.all.Len() }

// With returns the configuration with these values set, and writes them.
func (v Values) With(values map[string]string, l *limits.Limits, b *storage.Batch) (Values, error) {
	after, bytes := v.all.Edit(), v.bytes
	for k, value := range values {
		switch {
		case k == "":
			return v, fmt.Errorf("%w: a configuration key has at least one byte", refusals.ErrInvalid)
		case len(k) > KeyMax:
			return v, fmt.Errorf("%w: configuration key of %d bytes, the limit is %d", refusals.ErrTooBig, len(k), KeyMax)
		case len(value) > ValueMax:
			return v, fmt.Errorf("%w: value of %.64q has %d bytes, the limit is %d", refusals.ErrTooBig, k, len(value), ValueMax)
		}
		old, known := after.Set(k, value)
		bytes += len(value) - len(old)
		if !known {
			bytes += len(k)
		}
	}
	if after.Len() > l.Values || bytes > l.ValueBytes {
		return v, fmt.Errorf("%w: the runtime configuration would have %d keys and %d bytes, the limits are %d and %d; delete some with FILA.CONFIG DEL",
			refusals.ErrInvalid, after.Len(), bytes, l.Values, l.ValueBytes)
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		b.Put(storage.State, storage.AppendStateKey(nil, storage.StateConfig, k), []byte(values[k]))
	}
	return Values{after.Map, bytes}, nil
}

// Without returns the configuration without these values, deletes their records, and says how many of them existed.
func (v Values) Without(keys []string, b *storage.Batch) (Values, int) {
	after, bytes, n := v.all.Edit(), v.bytes, 0
	for _, k := range keys {
		if old, ok := after.Delete(k); ok {
			n++
			bytes -= len(k) + len(old)
			b.Delete(storage.State, storage.AppendStateKey(nil, storage.StateConfig, k))
		}
	}
	return Values{after.Map, bytes}, n
}

// Keys returns up to count names that begin with prefix and are greater than after, in ascending order.
func (v Values) Keys(prefix, after string, count int) (keys []string) {
	for k := range v.all.From(max(prefix, after)) {
		if !strings.HasPrefix(k, prefix) || len(keys) == count {
			break
		}
		if k > after {
			keys = append(keys, k)
		}
	}
	return keys
}

// ReadValues reads the runtime configuration of a store; after an error as far as it could be read.
func ReadValues(store records.Scanner) (Values, error) {
	all, bytes := ordered.Map[string]{}.Edit(), 0
	err := records.Each(store, "configuration", storage.StateConfig, 1, func(name []string, value []byte) error {
		all.Set(name[0], string(value))
		bytes += len(name[0]) + len(value)
		return nil
	})
	return Values{all.Map, bytes}, err
}
