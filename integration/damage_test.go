package integration_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
)

const (
	damagedKeys    = 4
	inTables       = 2000 // messages in table files
	inLog          = 200  // messages only in the log
	damagedAll     = inTables + inLog
	damagedLeases  = 8
	damagedPayload = 256
)

// payloadOf returns an incompressible payload that contains its number.
func payloadOf(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d ", n)
	for i := 0; b.Len() < damagedPayload; i++ {
		fmt.Fprintf(&b, "%x", sha256.Sum256(fmt.Appendf(nil, "%d/%d", n, i)))
	}
	return b.String()[:damagedPayload]
}

// killedStore creates a data directory as kill -9 leaves it, with messages in tables and in the
// log, leases, failures and delayed messages.
func killedStore(t *testing.T) string {
	t.Helper()
	b := kit.Serve(t, "--storage.lease_lag_ms", "0")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 3_600_000)
	enqueue := func(from, to int) {
		for chunk := range slices.Chunk(numbers(from, to), 500) {
			_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for _, n := range chunk {
					p.Do(t.Context(), "FILA.ENQUEUE", "q", payloadOf(n), "KEY", fmt.Sprint("key-", n%damagedKeys))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	enqueue(0, inTables)
	held := lease(t, c, "q", "COUNT", damagedLeases)
	for _, d := range held[:damagedLeases/2] {
		kit.Do(t, c, "FILA.NACK", "q", d.receipt, "DELAY", 1000)
	}
	kit.Do(t, c, "FILA.BACKUP", "flushed")   // flushes everything to tables
	for n := inTables; n < damagedAll; n++ { // one batch each
		enqueue(n, n+1)
	}
	kit.Kill(t, b)
	return b.Data()
}

func numbers(from, to int) []int {
	var all []int
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

// copied copies a data directory for another broker.
func copied(t *testing.T, data string) *harness.Broker {
	t.Helper()
	b := kit.Prepare(t)
	if err := os.CopyFS(b.Data(), os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	return b
}

// largestFile returns the largest file that matches.
func largestFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	size := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	return slices.MaxFunc(files, func(a, b string) int { return int(size(a) - size(b)) })
}

// harm damages the bytes of a file.
type harm func(b []byte) []byte

func flipAt(where float64) harm {
	return func(b []byte) []byte { b[int(float64(len(b)-1)*where)] ^= 0x10; return b }
}

func cutAt(where float64) harm {
	return func(b []byte) []byte { return b[:int(float64(len(b))*where)] }
}

func zeroAt(where float64, n int) harm {
	return func(b []byte) []byte {
		at := int(float64(len(b)) * where)
		clear(b[at:min(at+n, len(b))])
		return b
	}
}

// left returns the numbers of the messages in a broker.
func left(t *testing.T, b *harness.Broker) map[int]bool {
	t.Helper()
	kit.Start(t, b)
	c := kit.Connect(t, b.Addr(), 3)
	names, ok := kit.Do(t, c, "FILA.QUEUE", "LIST").([]any)
	if !ok {
		t.Fatal("no list of queues")
	}
	held := map[int]bool{}
	for _, q := range names {
		for cursor := "0"; ; {
			page, ok := kit.Do(t, c, "FILA.BROWSE", q, "CURSOR", cursor, "COUNT", 1000).([]any)
			if !ok {
				t.Fatal("no page")
			}
			messages, ok := page[1].([]any)
			if !ok {
				t.Fatal("no messages")
			}
			for _, m := range messages {
				payload, n := fmt.Sprint(kit.Mapped(t, m)["payload"]), 0
				if _, err := fmt.Sscan(payload, &n); err != nil || payload != payloadOf(n) || held[n] {
					t.Errorf("a message that no client sent, or twice: %q", payload)
				}
				held[n] = true
			}
			if cursor = fmt.Sprint(page[0]); cursor == "0" {
				break
			}
		}
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	return held
}

// TestDamageIsRefusedReportedAndRepaired: the broker does not start on damaged data, fila check
// names the file, and after fila repair the broker serves the remaining messages.
func TestDamageIsRefusedReportedAndRepaired(t *testing.T) {
	t.Parallel()
	data := killedStore(t)
	for i, x := range []struct {
		file, name string
		harm       harm
		least      int  // minimum of messages that repair must save
		starts     bool // the damaged part is not read at start
	}{
		{"*.log", "a flipped bit in the middle", flipAt(0.5), damagedAll - 2, false},
		{"*.log", "a flipped bit at the start", flipAt(0), damagedAll - inLog, false},
		{"*.log", "zeros in the middle", zeroAt(0.5, 100), inTables, false},
		{"MANIFEST-*", "a flipped bit in the middle", flipAt(0.5), damagedAll, false},
		{"MANIFEST-*", "nothing left", cutAt(0), damagedAll, false},
		{"MANIFEST-*", "zeros", zeroAt(0.3, 100), damagedAll, false},
		{"CURRENT", "a flipped bit", flipAt(0.5), damagedAll, false},
		{"CURRENT", "cut in half", cutAt(0.5), damagedAll, false},
		{"CURRENT", "nothing left", cutAt(0), damagedAll, false},
		{"CURRENT", "zeros", zeroAt(0, 100), damagedAll, false},
		{"*.sst", "a flipped bit in the middle", flipAt(0.5), damagedAll - 50, true},
		{"*.sst", "a flipped bit at the start", flipAt(0), damagedAll - 50, true},
		{"*.sst", "a flipped bit at the end", flipAt(1), inLog, false},
		{"*.sst", "zeros in the middle", zeroAt(0.5, 20_000), damagedAll - 150, true},
		{"*.sst", "cut in half", cutAt(0.5), inLog, false},
		{"*.sst", "nothing left", cutAt(0), inLog, false},
	} {
		if testing.Short() && i%2 != 0 { // each kind of file is left
			continue
		}
		t.Run(x.file+" "+x.name, func(t *testing.T) {
			t.Parallel()
			b := copied(t, data)
			file := largestFile(t, b.Data(), x.file)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			written := len(before)
			if x.file == "*.log" { // it has a hole at its end
				written = len(bytes.TrimRight(before, "\x00"))
			}
			damaged := append(x.harm(bytes.Clone(before[:written])), before[written:]...)
			if err := os.WriteFile(file, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if !x.starts {
				out, code := kit.Run(t, "--server.listen_addr", "127.0.0.1:0", "--storage.path", b.Data())
				if code != 1 || strings.Contains(out, "\n") || !strings.Contains(out, "fila check "+b.Data()) || !strings.Contains(out, "fila repair") {
					t.Errorf("start: exit code %d: %s", code, out)
				}
			}
			if out := wantOutput(t, 1, "damaged", "check", b.Data()); !strings.Contains(out, filepath.Base(file)) {
				t.Errorf("check does not name %s:\n%s", filepath.Base(file), out)
			}
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, damaged) {
				t.Errorf("check has changed %s: %v", file, err)
			}
			out := wantOutput(t, 0, "everything is in order", "repair", b.Data())
			wantOutput(t, 0, "everything is in order", "check", b.Data())
			kept, err := filepath.Glob(b.Data() + "-damaged-*")
			if err != nil || len(kept) != 1 || !strings.Contains(out, kept[0]) {
				t.Errorf("kept %v, %v:\n%s", kept, err, out)
			} else if got, err := os.ReadFile(filepath.Join(kept[0], filepath.Base(file))); err != nil || !bytes.Equal(got, damaged) {
				t.Errorf("the damaged file is not kept: %v", err)
			}
			if n := len(left(t, b)); n < x.least {
				t.Errorf("%d messages are left of %d, want %d:\n%s", n, damagedAll, x.least, out)
			} else {
				t.Logf("%d of %d messages are left", n, damagedAll)
			}
		})
	}
}

// The traces of a crash are not damage, and damage to unused data has no effect.
func TestWhatACrashLeavesIsNoDamage(t *testing.T) {
	t.Parallel()
	data := killedStore(t)
	// Not every version of RocksDB had something to warn of.
	if err := os.WriteFile(filepath.Join(data, "LOG"), []byte(strings.Repeat("a warning\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, x := range []struct {
		file, name string
		harm       harm
		lost       int
	}{
		{"*.log", "a torn end", func(b []byte) []byte { return b[:len(b)-10] }, inLog},
		{"*.log", "sectors that a disk has not kept", func(b []byte) []byte { return append(b[:len(b)/512*512], make([]byte, 4<<20-len(b)/512*512)...) }, inLog},
		{"*.log", "half a header behind it", func(b []byte) []byte { return append(b, 1, 2, 3) }, 0},
		{"*.log", "zeros behind it", func(b []byte) []byte { return append(b, make([]byte, 5000)...) }, 0},
		{"OPTIONS-*", "a flipped bit", flipAt(0.5), 0},
		{"OPTIONS-*", "nothing left", cutAt(0), 0},
		{"IDENTITY", "a flipped bit", flipAt(0.5), 0},
		{"IDENTITY", "nothing left", cutAt(0), 0},
		{"LOG", "zeros", zeroAt(0, 1000), 0},
	} {
		if testing.Short() && i%2 != 0 { // each kind of file is left
			continue
		}
		t.Run(x.file+" "+x.name, func(t *testing.T) {
			t.Parallel()
			b := copied(t, data)
			file := largestFile(t, b.Data(), x.file)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if x.file == "*.log" { // without the hole at its end
				before = bytes.TrimRight(before, "\x00")
			}
			if err := os.WriteFile(file, x.harm(before), 0o600); err != nil {
				t.Fatal(err)
			}
			wantOutput(t, 0, "everything is in order", "check", b.Data())
			wantOutput(t, 0, "nothing was changed", "repair", b.Data())
			if n := len(left(t, b)); n < damagedAll-x.lost {
				t.Errorf("%d messages are left, want %d", n, damagedAll-x.lost)
			}
		})
	}
}
