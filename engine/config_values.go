package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/faisca/fila/storage"
)

// Runtime configuration: names and values that operators change while the broker
// runs and that scripts read with fila.get. All of it is in memory.

const (
	configKeyMax   = 512
	configValueMax = 8 << 10
)

// SetConfig sets values, all of them or none. The next message that is enqueued
// after the reply sees them.
func (tx *Tx) SetConfig(values map[string]string) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	after, bytes := c.out.snapshot.config.edit(), c.out.snapshot.configBytes
	for k, v := range values {
		switch {
		case k == "":
			return fmt.Errorf("%w: a configuration key has at least one byte", ErrInvalid)
		case len(k) > configKeyMax:
			return fmt.Errorf("%w: configuration key of %d bytes, the limit is %d", ErrTooBig, len(k), configKeyMax)
		case len(v) > configValueMax:
			return fmt.Errorf("%w: value of %.64q has %d bytes, the limit is %d", ErrTooBig, k, len(v), configValueMax)
		}
		old, known := after.tree.Set(k, v)
		bytes += len(v) - len(old)
		if !known {
			bytes += len(k)
		}
	}
	if l := &c.cfg.Limits; after.len() > l.Values || bytes > l.ValueBytes {
		return fmt.Errorf("%w: the runtime configuration would have %d keys and %d bytes, the limits are %d and %d; delete some with FILA.CONFIG DEL",
			ErrInvalid, after.len(), bytes, l.Values, l.ValueBytes)
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateConfig, k), []byte(values[k]))
	}
	c.out.sync = true
	c.out.snapshot = c.out.snapshot.withConfig(after, bytes)
	return nil
}

// DeleteConfig removes values and returns how many there were.
func (tx *Tx) DeleteConfig(keys []string) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	after, bytes, n := c.out.snapshot.config.edit(), c.out.snapshot.configBytes, 0
	for _, k := range keys {
		if old, ok := after.tree.Delete(k); ok {
			n++
			bytes -= len(k) + len(old)
			c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, stateConfig, k))
		}
	}
	if n > 0 {
		c.out.sync = true
		c.out.snapshot = c.out.snapshot.withConfig(after, bytes)
	}
	return n, nil
}

// Config returns a value of the runtime configuration.
func (tx *Tx) Config(key string) (string, bool) { return tx.core.out.snapshot.Get(key) }

// ConfigKeys returns the keys that start with a prefix and come after another, in
// order, at most count.
func (tx *Tx) ConfigKeys(prefix, after string, count int) []string {
	var keys []string
	for k := range tx.core.out.snapshot.config.from(max(prefix, after)) {
		if !strings.HasPrefix(k, prefix) || len(keys) == count {
			break
		}
		if k > after {
			keys = append(keys, k)
		}
	}
	return keys
}

func (c *core) recoverConfig() error {
	config, bytes := ordered[string]{}.edit(), 0
	err := c.scan(storage.State, storage.AppendStateKey(nil, stateConfig), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("configuration %q: %w", k, storage.ErrCorrupt)
		}
		config.tree.Set(parts[1], string(v))
		bytes += len(parts[1]) + len(v)
		return nil
	})
	c.out.snapshot = c.out.snapshot.withConfig(config, bytes)
	return err
}
