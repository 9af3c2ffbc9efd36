package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// log keeps what a relay reports.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *log) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.lines, "\n"), text)
}

// relaying runs a relay until the test ends, or the function that it returns is called.
func relaying(t *testing.T, cfg Config, at func(*Relay, string)) (stop func()) {
	t.Helper()
	if cfg.Broker == "" {
		cfg.Broker = "redis://" + sharedBroker.addr
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if at != nil {
		r.at = func(step string) { at(r, step) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		_ = r.Close()
		close(ended)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// queue makes a queue of the shared broker with the name of the test.
func queue(t *testing.T, client *redis.Client, options ...any) string {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "-")
	if err := client.Do(t.Context(), append([]any{"FILA.QUEUE", "CREATE", name}, options...)...).Err(); err != nil {
		t.Fatal(err)
	}
	return name
}

// lease returns what is ready in a queue, as key and payload, by key in the order of delivery.
func lease(t *testing.T, client *redis.Client, queue string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for {
		var messages []any
		until(t, "a node leads", func() bool { // else nothing is executed
			var err error
			if messages, err = client.Do(t.Context(), "FILA.LEASE", queue, "COUNT", 1000, "VISIBILITY", 3_600_000).Slice(); err != nil && !strings.HasPrefix(err.Error(), "LOADING ") {
				t.Fatal(err)
			}
			return err == nil
		})
		if len(messages) == 0 {
			return all
		}
		for _, m := range messages {
			fields := m.([]any)
			key := fields[3].(string)
			all[key] = append(all[key], fields[1].(string))
		}
	}
}

// number returns a number of the database.
func number(t *testing.T, db *pgx.Conn, sql string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

const waitingRows = "SELECT count(*) FROM fila_outbox WHERE failed_at IS NULL"

func enqueue(t *testing.T, db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, queue, payload, key string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), "SELECT fila_enqueue($1, $2::text, key => $3)", queue, payload, key); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsCommittedIsEnqueuedInOrder(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	relaying(t, Config{Database: url, Poll: time.Hour}, nil) // NOTIFY wakes it
	for _, end := range []string{"commit", "rollback", "commit"} {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			enqueue(t, tx, q, fmt.Sprint(end, i), fmt.Sprint("k", i%2))
		}
		if end == "commit" {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all rows are moved", func() bool { return number(t, db, waitingRows) == 0 })
	got := lease(t, client, q)
	for n := range 2 {
		var want []string
		for range 2 {
			for i := n; i < 300; i += 2 {
				want = append(want, fmt.Sprint("commit", i))
			}
		}
		if !slices.Equal(got[fmt.Sprint("k", n)], want) {
			t.Errorf("k%d: %v", n, got[fmt.Sprint("k", n)])
		}
	}
}

func TestTheFunctionTakesTheOptionsOfAMessage(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	relaying(t, Config{Database: url}, nil)
	var id string
	if err := db.QueryRow(t.Context(), `SELECT fila_enqueue($1, '\x00ff'::bytea, key => 'acme', priority => 9, ttl => '2 hours', delay => '1 hour',
		throttles => '{a,b c}', headers => '{"x": "1", "y": "z w"}', options => '{COST,10}')::text`, q).Scan(&id); err != nil {
		t.Fatal(err)
	}
	until(t, "the row is moved", func() bool { return number(t, db, waitingRows) == 0 })
	reply, err := client.Do(t.Context(), "FILA.BROWSE", q).Slice()
	if err != nil || len(reply[1].([]any)) != 1 {
		t.Fatal(reply, err)
	}
	m := reply[1].([]any)[0].(map[any]any)
	for field, want := range map[string]string{
		"payload": "\x00\xff", "key": "acme", "priority": "9", "status": "delayed", "cost": "10", "throttle": "[a b c]", "headers": "map[x:1 y:z w]",
	} {
		if got := fmt.Sprint(m[field]); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	ready, expires := m["ready_at"].(int64), m["expires_at"].(int64)
	if d := time.Until(time.UnixMilli(ready)); d < 50*time.Minute || d > time.Hour {
		t.Errorf("it is ready in %v", d)
	}
	if d := time.Until(time.UnixMilli(expires)); d < 110*time.Minute || d > 2*time.Hour+time.Minute {
		t.Errorf("it expires in %v", d)
	}
	// The id is the DEDUP id.
	if err := client.Do(t.Context(), "FILA.ENQUEUE", q, "again", "DEDUP", id).Err(); err != nil {
		t.Fatal(err)
	}
	if n := depth(t, client, q); n != 1 {
		t.Errorf("the id was not the DEDUP id: %d messages", n)
	}
}

// depth returns the number of messages of a queue.
func depth(t *testing.T, client *redis.Client, queue string) int64 {
	t.Helper()
	info, err := client.Do(t.Context(), "FILA.QUEUE", "INFO", queue).Result()
	if err != nil {
		t.Fatal(err)
	}
	fields := info.(map[any]any)
	return fields["ready"].(int64) + fields["delayed"].(int64) + fields["leased"].(int64)
}

func TestWhatIsRefusedForGoodIsMarkedAndOthersGoOn(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	for i := range 20 {
		enqueue(t, db, q, fmt.Sprint(i), "k")
		enqueue(t, db, "missing", "x", "k")
		exec1(t, url, "SELECT fila_enqueue($1, 'x', key => 'k', priority => 10)", q)
		exec1(t, url, "SELECT fila_enqueue($1, 'x', key => 'k', options => '{GROUP,none}')", q)
	}
	registry, said := prometheus.NewRegistry(), &log{}
	stop := relaying(t, Config{Database: url, Registry: registry, Log: said.add}, nil)
	until(t, "all are moved or marked", func() bool { return number(t, db, waitingRows) == 0 })
	stop()
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
	}
	if got := lease(t, client, q); !slices.Equal(got["k"], want) {
		t.Errorf("%v", got)
	}
	for code, n := range map[string]int64{"NOQUEUE": 20, "ERR": 20, "NOGROUP": 20} {
		if got := number(t, db, "SELECT count(*) FROM fila_outbox WHERE failed_at IS NOT NULL AND error LIKE $1", code+" %"); got != n {
			t.Errorf("%d rows have %s, want %d", got, code, n)
		}
	}
	if got := figures(t, registry); got["fila_outbox_rows_total enqueued"] != 20 || got["fila_outbox_rows_total failed"] != 60 || got["fila_outbox_refusals_total NOQUEUE"] == 0 {
		t.Errorf("%v", got)
	}
	if !said.has(`no such queue: "missing"`) {
		t.Errorf("%v", said.lines)
	}
	// What is marked is enqueued once it is unmarked.
	if err := client.Do(t.Context(), "FILA.QUEUE", "CREATE", "missing").Err(); err != nil {
		t.Fatal(err)
	}
	exec1(t, url, "UPDATE fila_outbox SET failed_at = NULL, error = NULL WHERE queue = 'missing'")
	relaying(t, Config{Database: url}, nil)
	until(t, "they are moved", func() bool { return number(t, db, waitingRows) == 0 })
	if n := depth(t, client, "missing"); n != 20 {
		t.Errorf("%d messages", n)
	}
}

// No row stops the others, whatever is in it, and each has the reason for which it is refused.
func TestARowThatCannotBeAMessageIsMarkedAndOthersGoOn(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	enqueue(t, db, q, "first", "k")
	for _, arguments := range []string{
		"options => '{NULL}'", "throttles => '{a,NULL}'", `headers => '{"a": null}'`,
		"key => repeat('k', 70000)", `options => ARRAY['THROTTLE', repeat('t', 70000)]`, `headers => jsonb_build_object('h', repeat('h', 5000000))`,
		// More than the limit of a command, and so much more that its refusal is not read.
		"payload => repeat('p', 40000000)", "payload => repeat('p', 120000000)",
	} {
		if !strings.HasPrefix(arguments, "payload") {
			arguments = "'x', " + arguments
		}
		exec1(t, url, "SELECT fila_enqueue($1, "+arguments+")", q)
	}
	exec1(t, url, "SELECT fila_enqueue($1, 'x', options => '{{COST,10},{MAXATTEMPTS,3}}', key => 'k')", q)
	enqueue(t, db, q, "last", "k")
	relaying(t, Config{Database: url}, nil)
	until(t, "all are moved or marked", func() bool { return number(t, db, waitingRows) == 0 })
	if got := lease(t, client, q); !slices.Equal(got["k"], []string{"first", "x", "last"}) {
		t.Errorf("%v", got)
	}
	for code, n := range map[string]int64{"NULL": 3, "TOOBIG": 5} {
		if got := number(t, db, "SELECT count(*) FROM fila_outbox WHERE failed_at IS NOT NULL AND error LIKE $1", code+" %"); got != n {
			t.Errorf("%d rows have %s, want %d", got, code, n)
		}
	}
}

// figures returns the samples of a registry by name and labels.
func figures(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestAQueueThatTakesNothingWaitsInOrderAndOthersGoOn(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client, "KEYMAXDEPTH", 3), connect(t, url)
	other, paused := q+"-other", q+"-paused"
	for _, name := range []string{other, paused} {
		if err := client.Do(t.Context(), "FILA.QUEUE", "CREATE", name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Do(t.Context(), "FILA.QUEUE", "PAUSE", paused, "IN").Err(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprint(i))
		enqueue(t, db, q, fmt.Sprint(i), "full")
		enqueue(t, db, paused, fmt.Sprint(i), "k")
	}
	for i := range 3 {
		enqueue(t, db, q, fmt.Sprint(i), "free")
		enqueue(t, db, other, fmt.Sprint(i), "k")
	}
	registry := prometheus.NewRegistry()
	var counting atomic.Pointer[Relay]
	relaying(t, Config{Database: url, Poll: 20 * time.Millisecond, Registry: registry}, func(r *Relay, _ string) { counting.Store(r) })
	until(t, "all but what is refused is moved", func() bool { return number(t, db, waitingRows) == 17 })
	until(t, "the metrics say so", func() bool {
		if err := counting.Load().countOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := figures(t, registry)
		return f["fila_outbox_rows_waiting"] == 17 && f["fila_outbox_oldest_seconds"] > 0 && f["fila_outbox_refusals_total PAUSED"] > 1 && f["fila_outbox_refusals_total MAXDEPTH"] > 1
	})
	if err := client.Do(t.Context(), "FILA.QUEUE", "RESUME", paused, "IN").Err(); err != nil {
		t.Fatal(err)
	}
	var got []string
	until(t, "the full key is moved bit by bit", func() bool {
		messages, err := client.Do(t.Context(), "FILA.LEASE", q, "COUNT", 10).Slice()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			fields := m.([]any)
			if fields[3] == "full" {
				got = append(got, fields[1].(string))
			}
			if err := client.Do(t.Context(), "FILA.ACK", q, fields[0]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		return len(got) == 10 && number(t, db, waitingRows) == 0
	})
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := lease(t, client, paused); !slices.Equal(got["k"], want) {
		t.Errorf("%v", got)
	}
}

func TestNothingIsDoubledWhenTheDatabaseIsAwayForLongerThanTheWindow(t *testing.T) {
	atLength(t)
	client, d := sharedBroker.client(t), &database{}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	url := d.fresh(t)
	q := queue(t, client, "DEDUPWINDOW", 1)
	exec1(t, url, "SELECT fila_enqueue($1, i::text, key => 'k' || i % 10) FROM generate_series(1, 100) i", q)
	said := &log{}
	var once sync.Once
	restarted := make(chan error, 1)
	relaying(t, Config{Database: url, Workers: 1, Poll: 20 * time.Millisecond, Log: said.add}, func(_ *Relay, step string) {
		if step == "enqueued" {
			once.Do(func() {
				d.kill()
				go func() { restarted <- d.start() }()
			})
		}
	})
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	db := connect(t, url)
	until(t, "all rows are moved", func() bool { return number(t, db, waitingRows) == 0 })
	if n := depth(t, client, q); n != 100 {
		t.Errorf("%d messages", n)
	}
	until(t, "it warns of the window", func() bool { return said.has("has a DEDUPWINDOW of 1ms") })
}

func TestRelaysThatAreNotNotifiedLookByThemselves(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	exec1(t, url, "DROP TRIGGER fila_outbox_notify ON fila_outbox")
	relaying(t, Config{Database: url, Poll: 20 * time.Millisecond}, nil)
	relaying(t, Config{Database: url, Poll: 20 * time.Millisecond}, nil)
	for i := range 20 {
		enqueue(t, db, q, fmt.Sprint(i), "k")
	}
	until(t, "all rows are moved", func() bool { return number(t, db, waitingRows) == 0 })
	if n := depth(t, client, q); n != 20 {
		t.Errorf("%d messages", n)
	}
}

// Transactions that notify are committed one after the other, so not each of them does.
func TestInsertsNotifyOnceInAWhile(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db, listener := queue(t, client), connect(t, url), connect(t, url)
	relaying(t, Config{Database: url, Poll: time.Hour}, nil)
	if _, err := listener.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range 300 {
		enqueue(t, db, q, fmt.Sprint(i), "k")
	}
	most := int(time.Since(began)/(20*time.Millisecond)) + 1
	until(t, "all rows are moved", func() bool { return number(t, db, waitingRows) == 0 })
	exec1(t, url, "NOTIFY "+channel+", 'end'")
	n := 0
	for {
		x, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if x.Payload == "end" {
			break
		}
		n++
	}
	if n < 1 || n > most {
		t.Errorf("%d notifications, want 1 to %d", n, most)
	}
}

func TestSetupMayBeRepeatedAtTheSameTime(t *testing.T) {
	name := fmt.Sprint("test", databases.Add(1))
	exec1(t, sharedDB.url("postgres"), "CREATE DATABASE "+name)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			db, err := pgx.Connect(t.Context(), sharedDB.url(name))
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close(t.Context())
			if err := Setup(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestARelayWithoutTheTableSaysWhatMakesIt(t *testing.T) {
	said := &log{}
	relaying(t, Config{Database: sharedDB.url("postgres"), Log: said.add}, nil)
	until(t, "it says so", func() bool { return said.has("`fila-outbox setup` makes the tables") })
}

func TestASettingThatIsNotValidIsRefusedWithoutItsPassword(t *testing.T) {
	for _, c := range []Config{
		{Broker: "redis://u:s3cret pass@h:1"},
		{Broker: "http://u:s3cret@h:1"},
		{Broker: "redis://h:1", Database: "postgres://u:s3cret@h:port/x"},
		{Broker: "redis://h:1", Database: "postgres://u:s3cret@h/x?sslmode=none"},
		{Broker: "redis://h:1", Workers: 65},
		{Broker: "redis://h:1", Batch: -1},
		{Broker: "redis://h:1", Poll: 1},
	} {
		if r, err := New(c); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%+v: %v", c, err)
			_ = r.Close()
		}
	}
}

func TestErrorsOfConnectionsHaveNoPassword(t *testing.T) {
	said := &log{}
	relaying(t, Config{Broker: "redis://u:s3cret@" + sharedBroker.addr, Database: fmt.Sprintf("postgres://postgres:s3cret@127.0.0.1:%d/none", sharedDB.port), Log: said.add}, nil)
	until(t, "it reports the database", func() bool { return said.has("none") })
	url := sharedDB.fresh(t)
	exec1(t, url, "SELECT fila_enqueue('q', 'x')")
	relaying(t, Config{Broker: "redis://u:s3cret@" + sharedBroker.addr, Database: url, Log: said.add}, nil)
	until(t, "it reports the broker", func() bool { return said.has("broker: ") })
	if said.has("s3cret") {
		t.Errorf("%v", said.lines)
	}
}

func TestAnErrorOfTheBrokerDecidesWhatWaits(t *testing.T) {
	for text, want := range map[string]verdict{
		"NOQUEUE no such queue": final, "ERR syntax error": final, "TOOBIG x": final, "INVALID x": final, "NOBUDGET x": final,
		"PAUSED x": allWait, "NOPERM x": allWait,
		"MAXDEPTH x": keyWaits, "UNHEARDOF x": keyWaits,
		"LOADING x": brokerIs, "OOM x": brokerIs, "MISCONF x": brokerIs, "READONLY x": brokerIs, "MOVED 1 h:1": brokerIs, "CLUSTERDOWN x": brokerIs, "NOAUTH x": brokerIs, "EXECABORT x": brokerIs,
	} {
		if got := judge(redisError(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if judge(nil) != taken || judge(context.DeadlineExceeded) != brokerIs {
		t.Error("no error, or no reply")
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestWhatWaitsIsBounded(t *testing.T) {
	w, h, now := waits{all: map[string]waiting{}}, newHeld(), time.Now()
	for i := range 3 * waitsMax {
		h.waiting[(&row{queue: "q", key: strconv.Itoa(i)}).group()] = true
	}
	w.update(h, nil, now)
	all := w.now(now)
	if len(all) != waitsMax+1 || !slices.Contains(all, "q") {
		t.Errorf("%d wait", len(all))
	}
	// Twice as long each time, up to a limit, and it is forgotten when a row is taken.
	h = newHeld()
	h.waiting["p"] = true
	var pauses []time.Duration
	for range 12 {
		w.update(h, nil, now)
		pauses = append(pauses, w.all["p"].pause)
		now = w.all["p"].until
	}
	if pauses[0] != pauseFirst || pauses[1] != 2*pauseFirst || pauses[11] != pauseMost {
		t.Errorf("%v", pauses)
	}
	w.update(newHeld(), []*row{{queue: "p", done: true}}, now)
	if slices.Contains(slices.Collect(maps.Keys(w.all)), "p") {
		t.Error("it waits still")
	}
}
