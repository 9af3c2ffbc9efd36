package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// producer writes numbers of a key into the table done and enqueues them, in one transaction of one to five. A fifth of the
// transactions are rolled back. When the database dies, done says whether the last one was committed.
type producer struct {
	url, queue, key string
}

// run writes transactions until there are so many numbers, or stop is closed.
func (p producer) run(t *testing.T, numbers int, stop <-chan struct{}) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(numbers), uint64(len(p.key))))
	for end := time.Now().Add(patience()); ; {
		db, err := pgx.Connect(t.Context(), p.url)
		for err == nil {
			var n int
			if err = db.QueryRow(t.Context(), "SELECT coalesce(max(n), 0) FROM done WHERE key = $1", p.key).Scan(&n); err != nil {
				break
			}
			select {
			case <-stop:
				numbers = 0
			default:
			}
			if n >= numbers {
				_ = db.Close(t.Context())
				return
			}
			err = p.transaction(t.Context(), db, random, n)
			end = time.Now().Add(patience())
		}
		if db != nil {
			_ = db.Close(t.Context())
		}
		if time.Now().After(end) {
			t.Errorf("key %s: %v", p.key, err)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (p producer) transaction(ctx context.Context, db *pgx.Conn, random *rand.Rand, n int) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	for range 1 + random.IntN(5) {
		n++
		if _, err := tx.Exec(ctx, "INSERT INTO done (key, n) VALUES ($1, $2)", p.key, n); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT fila_enqueue($1, $2::text, key => $3)", p.queue, strconv.Itoa(n), p.key); err != nil {
			return err
		}
	}
	if random.IntN(5) == 0 {
		return nil
	}
	return tx.Commit(ctx)
}

// expect compares the messages of a queue with done: no more, no fewer, and those of each key in their order.
func expect(t *testing.T, client *redis.Client, queue, url string) (messages int) {
	t.Helper()
	db := connect(t, url)
	rows, _ := db.Query(t.Context(), "SELECT key, array_agg(n::text ORDER BY n) FROM done GROUP BY key")
	want := map[string][]string{}
	var key string
	var numbers []string
	if _, err := pgx.ForEachRow(rows, []any{&key, &numbers}, func() error {
		want[key] = slices.Clone(numbers)
		messages += len(numbers)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := lease(t, client, queue)
	for key := range got {
		if want[key] == nil {
			t.Errorf("key %s has messages, none was committed", key)
		}
	}
	for key, numbers := range want {
		if !slices.Equal(got[key], numbers) {
			t.Errorf("key %s: %d messages, want %d, each once and in order: %v", key, len(got[key]), len(numbers), got[key])
		}
	}
	return messages
}

// servers are a broker and a database that a test may kill.
func servers(t *testing.T) (*brokerProcess, *database) {
	t.Helper()
	b := &brokerProcess{dir: t.TempDir()}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.kill() })
	d := &database{}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	return b, d
}

// steps are those of a batch.
func steps() []string { return []string{"locked", "read", "enqueued", "deleted", "committed"} }

func TestNothingIsLostOrDoubledWhenOneDiesAtAStep(t *testing.T) {
	b, d := servers(t)
	for _, victim := range []string{"relay", "broker", "database"} {
		for _, step := range steps() {
			if testing.Short() && (victim != "relay" || step != "enqueued") {
				continue
			}
			t.Run(victim+"/"+step, func(t *testing.T) { diesAt(t, b, d, victim, step) })
		}
	}
}

func diesAt(t *testing.T, b *brokerProcess, d *database, victim, step string) {
	t.Helper()
	client, url := b.client(t), d.fresh(t)
	q := queue(t, client)
	exec1(t, url, "CREATE TABLE done (key text, n int, PRIMARY KEY (key, n))")
	var producers sync.WaitGroup
	for i := range 4 {
		producers.Go(func() { producer{url, q, fmt.Sprint("k", i)}.run(t, 50, nil) })
	}
	if victim == "relay" {
		if err := relayProcess(t, "redis://"+b.addr, url, step).Wait(); err == nil {
			t.Error("it did not die")
		}
	}
	var died sync.Once
	restarted := make(chan error, 1)
	stop := relaying(t, Config{Broker: "redis://" + b.addr, Database: url, Batch: 20, Poll: 100 * time.Millisecond}, func(_ *Relay, at string) {
		if at != step || victim == "relay" {
			return
		}
		died.Do(func() {
			if victim == "broker" {
				b.kill()
				go func() { restarted <- b.start() }()
			} else {
				d.kill()
				go func() { restarted <- d.start() }()
			}
		})
	})
	if victim != "relay" {
		if err := <-restarted; err != nil {
			t.Fatal(err)
		}
	}
	producers.Wait()
	db := connect(t, url)
	until(t, "all rows are moved", func() bool { return number(t, db, "SELECT count(*) FROM fila_outbox") == 0 })
	stop()
	if n := expect(t, client, q, url); n < 200 {
		t.Errorf("%d messages", n)
	}
}

// TestNothingIsLostOrDoubledUnderKills kills relays, the broker and the database at any moment, while three relays work
// side by side.
func TestNothingIsLostOrDoubledUnderKills(t *testing.T) {
	atLength(t)
	const kills, keys = 60, 12
	b, d := servers(t)
	client, url := b.client(t), d.fresh(t)
	q := queue(t, client)
	exec1(t, url, "CREATE TABLE done (key text, n int, PRIMARY KEY (key, n))")
	stop := make(chan struct{})
	var producers sync.WaitGroup
	for i := range keys {
		producers.Go(func() { producer{url, q, fmt.Sprint("k", i)}.run(t, 1_000_000, stop) })
	}
	var relays [3]*exec.Cmd
	for i := range relays {
		relays[i] = relayProcess(t, "redis://"+b.addr, url, "")
	}
	t.Cleanup(func() {
		for _, r := range relays {
			_ = r.Process.Kill()
			_ = r.Wait()
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	for n := range kills {
		<-time.After(time.Duration(random.IntN(400)) * time.Millisecond)
		switch victim := n % 5; victim {
		case 3:
			b.kill()
			if err := b.start(); err != nil {
				t.Fatal(err)
			}
		case 4:
			d.kill()
			if err := d.start(); err != nil {
				t.Fatal(err)
			}
		default:
			_ = relays[victim].Process.Kill()
			_ = relays[victim].Wait()
			relays[victim] = relayProcess(t, "redis://"+b.addr, url, "")
		}
	}
	close(stop)
	producers.Wait()
	db := connect(t, url)
	until(t, "all rows are moved", func() bool { return number(t, db, "SELECT count(*) FROM fila_outbox") == 0 })
	for _, r := range relays {
		_ = r.Process.Signal(syscall.SIGTERM)
		if err := r.Wait(); err != nil {
			t.Errorf("a relay that is stopped: %v", err)
		}
	}
	n := expect(t, client, q, url)
	t.Logf("%d messages", n)
	if n < 500 {
		t.Errorf("only %d messages", n)
	}
}

func TestANodeThatIsAwayIsPassedOver(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	port, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, db, q, "x", "k")
	relaying(t, Config{Broker: fmt.Sprintf("redis://127.0.0.1:%d?addr=%s", port, sharedBroker.addr), Database: url}, nil)
	until(t, "the row is moved", func() bool { return number(t, db, waitingRows) == 0 })
	if n := depth(t, client, q); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestAServerThatIsNotFilaMarksNoRows(t *testing.T) {
	url := sharedDB.fresh(t)
	exec1(t, url, "SELECT fila_enqueue('q', 'x')")
	port, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := &log{}
	relaying(t, Config{Broker: fmt.Sprint("redis://127.0.0.1:", port), Database: url, Log: said.add}, nil)
	until(t, "it says so", func() bool { return said.has("the server is not Fila") })
	if n := number(t, connect(t, url), waitingRows); n != 1 {
		t.Errorf("%d rows wait", n)
	}
}
