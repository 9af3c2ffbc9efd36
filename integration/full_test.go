package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/smalldisk"
)

// TestAStartOnAFullDiskCanBeEmptied fills the disk, kills the broker, and repeatedly starts it
// without a free byte: each start serves reads and commands that free space, and leaves no files
// behind.
func TestAStartOnAFullDiskCanBeEmptied(t *testing.T) {
	disk := t.TempDir()
	if err := smalldisk.Mount(disk, 64<<20); err != nil {
		t.Logf("%v: TestAStartOnAFullDiskServesReads has the injected form", err)
		return
	}
	t.Cleanup(func() {
		if err := smalldisk.Unmount(disk); err != nil {
			t.Error(err)
		}
	})
	b, err := harness.New(binary(t), disk, "--log.level", "error")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop() }) // before the file system is unmounted
	restart(t, b)
	c := connect(t, b.Addr(), 3)
	for _, q := range []string{"acked", "purged", "deleted", "kept"} {
		do(t, c, "FILA.QUEUE", "CREATE", q, "NODLQ")
	}
	payload := strings.Repeat("x", 10_000)
	stored, queues := map[string]int{}, []string{"acked", "purged", "deleted", "kept"}
	for i := range 2400 {
		q := queues[i%4]
		if q == "kept" && stored[q] == 50 {
			continue
		}
		do(t, c, "FILA.ENQUEUE", q, payload+fmt.Sprint(i))
		stored[q]++
	}
	if err := smalldisk.Fill(disk); err != nil {
		t.Fatal(err)
	}
	for range 3 { // starts that are killed, on a completely full disk
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		before, err := smalldisk.Usage(b.Data())
		if err != nil {
			t.Fatal(err)
		}
		restart(t, b)
		c = connect(t, b.Addr(), 3)
		refused(t, c, "MISCONF", "FILA.ENQUEUE", "acked", payload)
		if n := depth(t, c, "kept"); n != stored["kept"] {
			t.Fatalf("%d messages are kept, want %d", n, stored["kept"])
		}
		if now, err := smalldisk.Usage(b.Data()); err != nil || now > before+1<<20 {
			t.Errorf("a start has left %d bytes, %v", now-before, err)
		}
	}
	for n := stored["acked"]; n > 0; {
		got := lease(t, c, "acked", "COUNT", 100)
		if len(got) == 0 {
			t.Fatalf("%d messages are left, and none comes", n)
		}
		for _, d := range got {
			n -= int(do(t, c, "FILA.ACK", "acked", d.receipt).(int64))
		}
	}
	do(t, c, "FILA.PURGE", "purged")
	do(t, c, "FILA.QUEUE", "DELETE", "deleted", "FORCE")
	ok := false
	for end := time.Now().Add(patience); !ok && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ok = c.Do(t.Context(), "FILA.ENQUEUE", "acked", payload).Err() == nil
	}
	if !ok {
		t.Fatal("there is space, and nothing can be enqueued")
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	restart(t, b)
	c = connect(t, b.Addr(), 3)
	if kept, acked := depth(t, c, "kept"), depth(t, c, "acked"); kept != stored["kept"] || acked != 1 {
		t.Errorf("%d messages are kept, want %d; %d were enqueued, want 1", kept, stored["kept"], acked)
	}
}

func depth(t *testing.T, c *redis.Client, queue string) int {
	t.Helper()
	return int(mapped(t, do(t, c, "FILA.STATS", queue))["ready"].(int64))
}
