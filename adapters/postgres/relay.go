package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a relay needs.
type Config struct {
	// Broker is the URL of the broker: fila://[user:password@]host:port, filas:// with TLS, further nodes of a cluster as
	// ?addr=host:port. Its user needs the right to produce to the queues, and to FILA.QUEUE INFO for a warning.
	Broker string
	// Database is the URL of PostgreSQL, or its settings as key=value; what it leaves out is taken from PGHOST and the like.
	// It must be a direct connection, or one through a pooler by session: LISTEN is one of a session.
	Database string

	Workers int           // batches at a time, each with a connection to both sides; 0: 4
	Batch   int           // rows of a batch at most; 0: 1000
	Poll    time.Duration // after this time without a notification a worker looks for rows; 0: 1 s

	Registry prometheus.Registerer // for the metrics; nil: none
	Log      func(line string)     // for what an operator should see, never a secret; nil: it is dropped
}

// Relay moves rows. Several may work for one table.
type Relay struct {
	cfg     Config
	db      *pgxpool.Pool
	broker  *broker
	metrics *metrics
	wake    chan struct{} // a worker should look for rows
	waits   waits
	settled settled
	at      func(step string) // called after each step of a batch; tests kill something there

	mu     sync.Mutex
	warned map[string]bool // queues whose window is known
	said   map[string]time.Time
}

// New returns a relay. The error says what of cfg is not valid; nothing is connected yet.
func New(cfg Config) (*Relay, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 4)
	cfg.Batch = cmp.Or(cfg.Batch, 1000)
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	if cfg.Workers < 1 || cfg.Workers > 64 || cfg.Batch < 1 || cfg.Batch > 10_000 || cfg.Poll < time.Millisecond {
		return nil, errors.New("workers must be 1 to 64, batch 1 to 10000, poll at least 1ms")
	}
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	p, err := pgxpool.ParseConfig(cfg.Database)
	if err != nil {
		return nil, fmt.Errorf("URL of the database: %w", err) // without its password
	}
	p.MaxConns = int32(cfg.Workers) + 2 // one listens, one counts
	for name, value := range map[string]string{
		"application_name": "fila-outbox",
		// Of a relay that is silent, PostgreSQL frees the rows.
		"idle_in_transaction_session_timeout": fmt.Sprint(idleMost.Milliseconds()),
		// What the planner believes of a table that fills and empties is often wrong, and the indexes are always right.
		// Without the compiler: it takes plans that may not scan the table for costly ones.
		"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
	} {
		if _, set := p.ConnConfig.RuntimeParams[name]; !set {
			p.ConnConfig.RuntimeParams[name] = value
		}
	}
	db, err := pgxpool.NewWithConfig(context.Background(), p)
	if err != nil {
		return nil, fmt.Errorf("URL of the database: %w", err)
	}
	b, err := openBroker(cfg.Broker, cfg.Workers+2)
	if err != nil {
		db.Close()
		return nil, err
	}
	return &Relay{
		cfg: cfg, db: db, broker: b, metrics: newMetrics(cfg.Registry), wake: make(chan struct{}, 1),
		waits: waits{all: map[string]waiting{}}, settled: settled{ids: map[[16]byte]struct{}{}},
		at: func(string) {}, warned: map[string]bool{}, said: map[string]time.Time{},
	}, nil
}

// Close closes all connections.
func (r *Relay) Close() error {
	r.db.Close()
	return r.broker.close()
}

// Ready returns nil if the table can be read and the broker answers.
func (r *Relay) Ready(ctx context.Context) error {
	if _, err := r.db.Exec(ctx, "SELECT 1 FROM fila_outbox, fila_outbox_part LIMIT 1"); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	client := r.broker.client()
	if err := client.Ping(ctx).Err(); err != nil {
		r.broker.next(client)
		return &brokerError{err}
	}
	return nil
}

// Run moves rows until ctx ends, and then ends the batches that have begun. It goes on after errors of either side, after a
// pause.
func (r *Relay) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range r.cfg.Workers {
		all.Go(func() { r.work(ctx) })
	}
	all.Go(func() { r.again(ctx, "listening for rows", r.listen) })
	all.Go(func() { r.again(ctx, "counting rows", r.count) })
	all.Wait()
}

// While rows come, not every insert notifies: a worker that had rows looks for more until none has come for lingerFor.
const (
	linger    = 20 * time.Millisecond
	lingerFor = time.Second
)

// rouse has a worker look for rows. One is enough: it rouses the next one if there are more than it takes.
func (r *Relay) rouse() {
	select {
	case r.wake <- struct{}{}:
	default: // it is roused already
	}
}

// work moves rows, batch after batch. A batch that has begun is not interrupted.
func (r *Relay) work(ctx context.Context) {
	failures := 0
	var had time.Time // rows
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchWithin)
		read, more, err := r.batch(bounded)
		cancel()
		if err != nil {
			r.failed("moving rows", err)
			if !wait(ctx, pause(failures)) {
				return
			}
			failures++
			continue
		}
		failures = 0
		if more {
			r.rouse()
		}
		if read > 0 {
			had = time.Now()
			continue
		}
		until := r.cfg.Poll
		if time.Since(had) < lingerFor {
			until = min(until, linger)
		}
		select {
		case <-r.wake:
		case <-time.After(until):
		case <-ctx.Done():
		}
	}
}

// again repeats what ends with an error, until ctx ends.
func (r *Relay) again(ctx context.Context, what string, do func(context.Context) error) {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		r.failed(what, err)
		if time.Since(began) > time.Minute {
			failures = 0
		}
		if !wait(ctx, pause(failures)) {
			return
		}
	}
}

// listen rouses workers at notifications.
func (r *Relay) listen(ctx context.Context) error {
	conn, err := r.db.Acquire(ctx)
	if err != nil {
		return err
	}
	own := conn.Hijack() // it is not given back with what it listens to
	defer own.Close(context.WithoutCancel(ctx))
	if _, err := own.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		r.rouse() // the first time for what was missed
		if _, err := own.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// pause is how long to wait after so many failures in a row: 0.1 to 5 seconds, and up to half of it more.
func pause(failures int) time.Duration {
	p := min(100*time.Millisecond<<min(failures, 10), 5*time.Second)
	return p + rand.N(p/2)
}

// wait returns false if ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// failed counts an error and reports it, the same one once a minute.
func (r *Relay) failed(what string, err error) {
	side := "database"
	if _, is := errors.AsType[*brokerError](err); is {
		side = "broker"
	}
	r.metrics.errors.WithLabelValues(side).Inc()
	line := what + ": " + err.Error()
	if undefined(err) {
		line += "; `fila-outbox setup` makes the tables"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.said[line]) > time.Minute {
		if len(r.said) > 100 {
			clear(r.said)
		}
		r.said[line] = now
		r.cfg.Log(line)
	}
}

// checkWindows warns once of a queue whose deduplication window may end before another relay has the rows of one that has
// died.
func (r *Relay) checkWindows(ctx context.Context, rows []*row) {
	for _, x := range rows {
		r.mu.Lock()
		known := r.warned[x.queue]
		if !known && len(r.warned) > 10_000 {
			clear(r.warned)
		}
		r.warned[x.queue] = true
		r.mu.Unlock()
		if known || !x.done || x.refused != nil {
			continue
		}
		if w, err := r.broker.window(ctx, x.queue); err == nil && w < 2*idleMost {
			r.cfg.Log(fmt.Sprintf("queue %q has a DEDUPWINDOW of %v: a message may be doubled when a relay dies, make it at least %d ms", x.queue, w, 2*idleMost.Milliseconds()))
		}
	}
}

// settled are rows that the broker has and that could not be deleted: this relay does not enqueue them again, however long
// the database is away.
type settled struct {
	mu  sync.Mutex
	ids map[[16]byte]struct{}
}

// settledMax bounds what is remembered: rows of batches that another relay has deleted since are never seen again.
const settledMax = 100_000

func (s *settled) add(rows []*row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids)+len(rows) > settledMax {
		clear(s.ids)
	}
	for _, r := range rows {
		if r.done && r.refused == nil {
			s.ids[r.id.Bytes] = struct{}{}
		}
	}
}

func (s *settled) mark(rows []*row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) > 0 {
		for _, r := range rows {
			if _, is := s.ids[r.id.Bytes]; is {
				r.done = true
			}
		}
	}
}

func (s *settled) remove(rows []*row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) > 0 {
		for _, r := range rows {
			delete(s.ids, r.id.Bytes)
		}
	}
}
