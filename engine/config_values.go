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
	configMax      = 10_000
)

// SetConfig sets values, all of them or none. The next message that is enqueued
// after the reply sees them.
func (tx *Tx) SetConfig(values map[string]string) error {
	c := tx.core
	if err := c.roomy(); err != nil {
		return err
	}
	after := maps.Clone(c.snapshot.config)
	for k, v := range values {
		switch {
		case k == "":
			return fmt.Errorf("%w: a configuration key has at least one byte", ErrInvalid)
		case len(k) > configKeyMax:
			return fmt.Errorf("%w: configuration key of %d bytes, the limit is %d", ErrTooBig, len(k), configKeyMax)
		case len(v) > configValueMax:
			return fmt.Errorf("%w: value of %.64q has %d bytes, the limit is %d", ErrTooBig, k, len(v), configValueMax)
		}
		after[k] = v
	}
	if len(after) > configMax {
		return fmt.Errorf("%w: there can be %d configuration keys", ErrInvalid, configMax)
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		c.batch.Put(storage.State, storage.AppendStateKey(nil, stateConfig, k), []byte(values[k]))
	}
	c.sync = true
	c.snapshot = c.snapshot.withConfig(after)
	return nil
}

// DeleteConfig removes values and returns how many there were.
func (tx *Tx) DeleteConfig(keys []string) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	after := maps.Clone(c.snapshot.config)
	for _, k := range keys {
		if _, ok := after[k]; ok {
			delete(after, k)
			c.batch.Delete(storage.State, storage.AppendStateKey(nil, stateConfig, k))
		}
	}
	n := len(c.snapshot.config) - len(after)
	if n > 0 {
		c.sync = true
		c.snapshot = c.snapshot.withConfig(after)
	}
	return n, nil
}

// Config returns a value of the runtime configuration.
func (tx *Tx) Config(key string) (string, bool) { return tx.core.snapshot.Get(key) }

// ConfigKeys returns the keys that start with a prefix and come after another, in
// order, at most count.
func (tx *Tx) ConfigKeys(prefix, after string, count int) []string {
	var keys []string
	for k := range tx.core.snapshot.config {
		if strings.HasPrefix(k, prefix) && k > after {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), count)]
}

func (c *core) recoverConfig() error {
	config := map[string]string{}
	err := c.scan(storage.State, storage.AppendStateKey(nil, stateConfig), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("configuration %q: %w", k, storage.ErrCorrupt)
		}
		config[parts[1]] = string(v)
		return nil
	})
	c.snapshot = c.snapshot.withConfig(config)
	return err
}
