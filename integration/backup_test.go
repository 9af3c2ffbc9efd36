package integration_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestABackupUnderLoadIsOneMoment takes backups while clients enqueue, lease, ack and
// use transactions, restores each elsewhere, and checks it against what was acknowledged
// before the backup was requested and what was requested before it was complete.
func TestABackupUnderLoadIsOneMoment(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"always", "interval", "never"} {
		t.Run(mode, func(t *testing.T) {
			if mode != "always" {
				testkit.AtLength(t)
			}
			b := kit.Serve(t, "--storage.sync", mode)
			c := kit.Connect(t, b.Addr(), 3)
			for _, q := range []string{"work", "left", "right"} {
				kit.Do(t, c, "FILA.QUEUE", "CREATE", q)
			}
			load := newTraffic()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for i := range 4 {
				load.clients.Go(func() { load.produce(ctx, kit.Connect(t, b.Addr(), 3), i) })
				load.clients.Go(func() { load.consume(ctx, kit.Connect(t, b.Addr(), 3)) })
			}
			for round := range 2 {
				load.await(t, (round+1)*400)
				before := load.look()
				name := fmt.Sprint("round-", round)
				reply := kit.Mapped(t, kit.Do(t, c, "FILA.BACKUP", name))
				after := load.look()
				path := filepath.Join(b.Data()+"-backups", name)
				if reply["name"] != name || reply["path"] != path {
					t.Errorf("told of %v, want %s", reply, path)
				}
				judge(t, restored(t, path), before, after)
			}
			stop()
			load.clients.Wait()
		})
	}
}

// traffic records the commands of clients and their replies.
type traffic struct {
	clients sync.WaitGroup
	mu      sync.Mutex
	state   map[string]uint8 // by payload
	n       int              // acknowledged enqueues
}

// What is known about a message.
const (
	asked    = 1 << iota // its enqueue was sent
	stored               // and acknowledged
	ackAsked             // its ack was sent
	acked                // and acknowledged
)

func newTraffic() *traffic { return &traffic{state: map[string]uint8{}} }

func (l *traffic) note(payload string, what uint8) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state[payload] |= what
	if what == stored {
		l.n++
	}
}

func (l *traffic) look() map[string]uint8 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.state)
}

// await waits until n messages were acknowledged.
func (l *traffic) await(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d messages are enqueued", n), func() bool { return l.enqueued() >= n })
}

func (l *traffic) enqueued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// produce enqueues single messages into one queue, and pairs into two queues in transactions.
func (l *traffic) produce(ctx context.Context, c *redis.Client, who int) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%d-%d", who, i)
		if i%4 != 0 {
			l.note(name, asked)
			if c.Do(ctx, "FILA.ENQUEUE", "work", name, "KEY", "key-"+strconv.Itoa(i%7)).Err() == nil {
				l.note(name, stored)
			}
			continue
		}
		l.note("left "+name, asked)
		l.note("right "+name, asked)
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Do(ctx, "FILA.ENQUEUE", "left", "left "+name)
			p.Do(ctx, "FILA.ENQUEUE", "right", "right "+name)
			return nil
		})
		if err == nil {
			l.note("left "+name, stored)
			l.note("right "+name, stored)
		}
	}
}

// consume acks two thirds of the messages that it leases and leaves the rest leased.
func (l *traffic) consume(ctx context.Context, c *redis.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		reply, err := c.Do(ctx, "FILA.LEASE", "work", "BLOCK", 100, "VISIBILITY", 3_600_000).Result()
		if err != nil {
			continue
		}
		deliveries, err := leased(reply)
		if err != nil || len(deliveries) == 0 || i%3 == 0 {
			continue
		}
		d := deliveries[0]
		l.note(d.payload, ackAsked)
		if c.Do(ctx, "FILA.ACK", "work", d.receipt).Err() == nil {
			l.note(d.payload, acked)
		}
	}
}

// restored restores a backup, starts a broker on it and returns its messages.
func restored(t *testing.T, path string) map[string]bool {
	t.Helper()
	b := kit.Prepare(t)
	wantOutput(t, 0, "restored", "restore", path, b.Data())
	kit.Start(t, b)
	defer kit.Stop(t, b)
	c := kit.Connect(t, b.Addr(), 3)
	held := map[string]bool{}
	for _, q := range []string{"work", "left", "right"} {
		for cursor := "0"; ; {
			page, ok := kit.Do(t, c, "FILA.BROWSE", q, "CURSOR", cursor, "COUNT", 1000).([]any)
			if !ok || len(page) != 2 {
				t.Fatalf("%v is no page", page)
			}
			messages, ok := page[1].([]any)
			if !ok {
				t.Fatalf("%v are no messages", page[1])
			}
			for _, m := range messages {
				held[fmt.Sprint(kit.Mapped(t, m)["payload"])] = true
			}
			if cursor = fmt.Sprint(page[0]); cursor == "0" {
				break
			}
		}
	}
	return held
}

// judge compares a backup with the state before it was requested and after it was complete.
func judge(t *testing.T, held map[string]bool, before, after map[string]uint8) {
	t.Helper()
	missing, back, early := 0, 0, 0
	for payload, was := range before {
		if was&stored != 0 && after[payload]&ackAsked == 0 && !held[payload] {
			missing++
		}
		if was&acked != 0 && held[payload] {
			back++
		}
	}
	for payload := range held {
		if after[payload] == 0 {
			early++
		}
		if name, ok := strings.CutPrefix(payload, "left "); ok && !held["right "+name] {
			t.Errorf("half of a transaction: %s", payload)
		}
		if name, ok := strings.CutPrefix(payload, "right "); ok && !held["left "+name] {
			t.Errorf("half of a transaction: %s", payload)
		}
	}
	if missing+back+early > 0 {
		t.Errorf("%d acknowledged before are missing, %d acked before are there, %d were not yet asked for", missing, back, early)
	}
	t.Logf("%d messages restored, %d known before, %d after", len(held), len(before), len(after))
}

// wantOutput runs the binary and fails unless the output contains a text.
func wantOutput(t *testing.T, code int, want string, args ...string) string {
	t.Helper()
	out, got := kit.Run(t, args...)
	if got != code || !strings.Contains(out, want) {
		t.Errorf("fila %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, want, out)
	}
	return out
}

func TestARestoreNeverTouchesWhatIsThere(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	held := kit.Do(t, c, "FILA.ENQUEUE", "q", "x")
	if got := kit.Do(t, c, "BGSAVE"); got != "Background saving started" {
		t.Errorf("BGSAVE: %v", got)
	}
	testkit.Eventually(t, "the backup is done", func() bool { return kit.Do(t, c, "LASTSAVE") != int64(0) })
	backups := b.Data() + "-backups"
	entries, err := filepath.Glob(filepath.Join(backups, "2*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("backups: %v, %v", entries, err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, 1, "not empty", "restore", entries[0], full)
	wantOutput(t, 1, "not empty", "restore", entries[0], b.Data())
	wantOutput(t, 1, "no such", "restore", filepath.Join(backups, "nosuch"), filepath.Join(full, "new"))
	wantOutput(t, 1, "not a backup", "restore", full, filepath.Join(full, "new"))
	empty := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(empty, 0o750); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, 0, "restored", "restore", entries[0], empty)
	wantOutput(t, 1, "not empty", "restore", entries[0], empty)
	if got := names(t, full); got != "precious" {
		t.Errorf("the directory holds %s now", got)
	}
	if got := kit.Do(t, c, "FILA.BACKUP", "again"); kit.Mapped(t, got)["name"] != "again" {
		t.Errorf("%v", got)
	}
	if got := kit.Mapped(t, kit.Do(t, c, "FILA.GET", "q", held)); got["payload"] != "x" {
		t.Errorf("%v", got)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// The original broker and the restored one both continue. They must not accept each other's
// receipts.
func TestReceiptsOfAnotherLifeAreWorthNothing(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x")
	path := fmt.Sprint(kit.Mapped(t, kit.Do(t, c, "FILA.BACKUP", "first"))["path"])
	kit.Kill(t, b)
	kit.Start(t, b) // its next delivery numbers are from a start after the backup
	old := one(t, c, "q")

	again := kit.Prepare(t)
	wantOutput(t, 0, "restored", "restore", path, again.Data())
	kit.Start(t, again)
	c = kit.Connect(t, again.Addr(), 3)
	held := one(t, c, "q")
	if held.id() != old.id() || held.receipt == old.receipt {
		t.Errorf("delivered %s, and before the backup's restore %s", held.receipt, old.receipt)
	}
	if n := kit.Do(t, c, "FILA.ACK", "q", old.receipt); n != int64(0) {
		t.Errorf("a receipt of the other broker acked %v", n)
	}
	if n := kit.Do(t, c, "FILA.ACK", "q", held.receipt); n != int64(1) {
		t.Errorf("acked %v", n)
	}
}
