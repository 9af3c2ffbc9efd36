package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
)

// patience is the timeout of operations that normally take moments. Only a run that fails reaches it.
const patience = 3 * time.Minute

// original is a store before the damage.
type original struct {
	data  string
	state map[string]string // payloads of the existing messages, by id
	gone  map[string]bool   // deleted messages
	// history lists the changes of each command, for stores whose log loses its end.
	history []change
	where   map[string][]place // places of the puts, by message
	deleted map[string][]place // places of the deletions, by message
}

// change is the effect of one command.
type change struct {
	added   string // id; empty: none
	payload string
	removed []string
}

// place is a range of a file.
type place struct {
	file     string
	from, to int64
}

// maker creates a store with one client.
type maker struct {
	*original
	c   *redis.Client
	rng *rand.Rand
	n   int
	in  map[string][]string // ids by queue
}

// makeStore runs a broker and kills it.
func makeStore(ctx context.Context, bin, dir string, rng *rand.Rand) (*original, error) {
	if err := os.Mkdir(dir, 0o750); err != nil {
		return nil, err
	}
	b, err := harness.New(bin, dir, "--storage.reserve_bytes", "0", "--storage.lease_lag_ms", "0")
	if err != nil {
		return nil, err
	}
	m := &maker{original: &original{data: b.Data(), state: map[string]string{}, gone: map[string]bool{}}, rng: rng, in: map[string][]string{}}
	for session := range 2 { // the second session starts with an existing MANIFEST
		if err := startUp(ctx, b); err != nil {
			return nil, err
		}
		m.c = redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 2, ReadTimeout: patience, MaxRetries: -1})
		err := m.work(ctx, session)
		err = errors.Join(err, m.c.Close(), b.Kill())
		if err != nil {
			return nil, err
		}
	}
	return m.original, m.locate()
}

func startUp(ctx context.Context, b *harness.Broker) error {
	if err := b.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Ready(ctx)
}

// work executes random commands. Backups flush the memtables to tables.
func (m *maker) work(ctx context.Context, session int) error {
	if session == 0 {
		for _, q := range []string{"a", "b", "c"} {
			if err := m.c.Do(ctx, "FILA.QUEUE", "CREATE", q, "VISIBILITY", 3_600_000).Err(); err != nil {
				return err
			}
		}
	}
	rounds := 2 + m.rng.IntN(3)
	for round := range rounds {
		for range 100 + m.rng.IntN(150) {
			if err := m.enqueue(ctx, 50+m.rng.IntN(300)); err != nil {
				return err
			}
		}
		if m.rng.IntN(3) == 0 { // exceeds a memtable and so starts a new log
			for range 50 {
				if err := m.enqueue(ctx, 100_000); err != nil {
					return err
				}
			}
		}
		for range 60 + m.rng.IntN(100) {
			if err := m.ack(ctx); err != nil {
				return err
			}
		}
		if m.rng.IntN(3) == 0 {
			if err := m.purge(ctx); err != nil {
				return err
			}
		}
		if round < rounds-1 || m.rng.IntN(2) == 0 {
			if err := m.c.Do(ctx, "FILA.BACKUP", fmt.Sprintf("s%d-%d", session, round)).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *maker) enqueue(ctx context.Context, size int) error {
	m.n++
	q := []string{"a", "b", "c"}[m.rng.IntN(3)]
	payload := fmt.Sprintf("%d ", m.n)
	for len(payload) < size {
		payload += fmt.Sprintf("%x", m.rng.Uint64())
		if len(payload) > 1000 {
			payload += strings.Repeat(payload[len(payload)-100:], (size-len(payload))/100+1)
		}
	}
	id, err := m.c.Do(ctx, "FILA.ENQUEUE", q, payload, "KEY", fmt.Sprint("key-", m.rng.IntN(5))).Text()
	if err != nil {
		return err
	}
	m.state[id] = payload
	m.in[q] = append(m.in[q], id)
	m.history = append(m.history, change{added: id, payload: payload})
	return nil
}

func (m *maker) remove(ids ...string) {
	for _, id := range ids {
		delete(m.state, id)
		m.gone[id] = true
		for q, all := range m.in {
			for n, other := range all {
				if other == id {
					m.in[q] = append(all[:n:n], all[n+1:]...)
					break
				}
			}
		}
	}
	m.history = append(m.history, change{removed: ids})
}

// ack acks a message, cancels it, or nacks it first.
func (m *maker) ack(ctx context.Context) error {
	q := []string{"a", "b", "c"}[m.rng.IntN(3)]
	if len(m.in[q]) == 0 {
		return nil
	}
	if m.rng.IntN(5) == 0 {
		id := m.in[q][m.rng.IntN(len(m.in[q]))]
		n, err := m.c.Do(ctx, "FILA.CANCEL", q, id).Int()
		if err != nil || n != 1 {
			return fmt.Errorf("cancel of %s: %d, %w", id, n, err)
		}
		m.remove(id)
		return nil
	}
	got, err := m.c.Do(ctx, "FILA.LEASE", q).Slice()
	if err != nil || len(got) == 0 {
		return err
	}
	receipt := fmt.Sprint(got[0].([]any)[0]) //nolint:forcetypeassert // the contract guarantees the type
	if m.rng.IntN(6) == 0 {
		return m.c.Do(ctx, "FILA.NACK", q, receipt, "DELAY", 0).Err()
	}
	n, err := m.c.Do(ctx, "FILA.ACK", q, receipt).Int()
	if err != nil || n != 1 {
		return fmt.Errorf("ack of %s: %d, %w", receipt, n, err)
	}
	id, _, _ := strings.Cut(receipt, ":")
	m.remove(id)
	return nil
}

func (m *maker) purge(ctx context.Context) error {
	q := []string{"a", "b", "c"}[m.rng.IntN(3)]
	n, err := m.c.Do(ctx, "FILA.PURGE", q).Int()
	if err != nil || n != len(m.in[q]) {
		return fmt.Errorf("purge: %d of %d, %w", n, len(m.in[q]), err)
	}
	m.remove(append([]string(nil), m.in[q]...)...)
	return nil
}

// locate finds the places of all messages and deletions in the files.
func (m *maker) locate() error {
	l := locator{where: map[string][]place{}, deleted: map[string][]place{}, keys: map[string][]byte{}}
	for _, x := range []struct {
		pattern string
		read    func(path string) error
	}{{"*.sst", l.table}, {"*.log", l.log}} {
		paths, err := filepath.Glob(filepath.Join(m.data, x.pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := x.read(path); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	for id, key := range l.keys {
		for _, r := range l.ranges {
			if string(key) >= string(r.from) && string(key) < string(r.to) {
				l.deleted[id] = append(l.deleted[id], r.at)
			}
		}
	}
	m.where, m.deleted = l.where, l.deleted
	return nil
}

// locator collects places.
type locator struct {
	where, deleted map[string][]place
	keys           map[string][]byte
	ranges         []rangeAt
}

// rangeAt is a range deletion.
type rangeAt struct {
	from, to []byte
	at       place
}

func (l *locator) add(key []byte, put bool, at place) {
	mk, err := storage.ParseMessageKey(key)
	if err != nil {
		return
	}
	id := mk.ID.String()
	if put {
		l.keys[id] = key
		l.where[id] = append(l.where[id], at)
		return
	}
	l.deleted[id] = append(l.deleted[id], at)
}

func (l *locator) table(path string) error {
	r, err := files.OpenTable(path, func(_, _ []byte) error { return errors.New("unexpected Zstandard table") })
	if err != nil || r.Name != storage.Messages.String() {
		return err
	}
	name := filepath.Base(path)
	for _, e := range r.Ranges { // stored in a block of their own, which damage elsewhere may make unreachable
		l.ranges = append(l.ranges, rangeAt{e.Key, e.Value, place{file: name, to: math.MaxInt64}})
	}
	w := r.Blocks()
	for {
		block, lost, ok := w.Next()
		if !ok {
			return nil
		}
		if lost != nil {
			return errors.New("cannot read an undamaged table")
		}
		from, to := w.Place()
		for _, e := range block {
			l.add(e.Key, e.Kind == files.Put, place{file: name, from: from, to: to})
		}
	}
}

func (l *locator) log(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	type batch struct {
		at      int64
		records *storage.Batch
	}
	var all []batch
	if _, err := files.ReadBatches(path, func(b files.Batch, err error) error {
		if err != nil {
			return err
		}
		records, err := storage.AdoptBatch(b.Records)
		all = append(all, batch{b.At, records})
		return err
	}); err != nil {
		return err
	}
	for n, b := range all {
		at := place{file: filepath.Base(path), from: b.at, to: info.Size()}
		if n+1 < len(all) {
			at.to = all[n+1].at
		}
		if err := b.records.Each(func(r storage.Record) error {
			switch {
			case r.Family != storage.Messages:
			case r.Op == storage.OpDeleteRange:
				l.ranges = append(l.ranges, rangeAt{r.Key, r.Value, at})
			default:
				l.add(r.Key, r.Op == storage.OpPut, at)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
