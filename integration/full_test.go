package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/internal/testkit/smalldisk"
)

// TestAStartOnAFullDiskCanBeEmptied fills the disk, kills the broker, and repeatedly starts it
// without a free byte: each start serves reads and commands that free space, and leaves no files
// behind.
func TestAStartOnAFullDiskCanBeEmptied(t *testing.T) {
	t.Parallel()
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
	b := kit.PrepareIn(t, disk, "--log.level", "error")
	kit.Start(t, b)
	c := kit.Connect(t, b.Addr(), 3)
	for _, q := range []string{"acked", "purged", "deleted", "kept"} {
		kit.Do(t, c, "FILA.QUEUE", "CREATE", q, "NODLQ")
	}
	payload := strings.Repeat("x", 10_000)
	stored, queues := map[string]int{}, []string{"acked", "purged", "deleted", "kept"}
	for i := range 2400 {
		q := queues[i%4]
		if q == "kept" && stored[q] == 50 {
			continue
		}
		kit.Do(t, c, "FILA.ENQUEUE", q, payload+fmt.Sprint(i))
		stored[q]++
	}
	if err := smalldisk.Fill(disk); err != nil {
		t.Fatal(err)
	}
	for range 3 { // starts that are killed, on a completely full disk
		kit.Kill(t, b)
		before, err := smalldisk.Usage(b.Data())
		if err != nil {
			t.Fatal(err)
		}
		kit.Start(t, b)
		c = kit.Connect(t, b.Addr(), 3)
		refused(t, c, "MISCONF", "FILA.ENQUEUE", "acked", payload)
		if n := depth(t, c, "kept"); n != stored["kept"] {
			t.Fatalf("%d messages are kept, want %d", n, stored["kept"])
		}
		if now, err := smalldisk.Usage(b.Data()); err != nil || now > before+1<<20 {
			t.Errorf("a start has left %d bytes, %v", now-before, err)
		}
	}
	for n := stored["acked"]; n > 0; {
		got := lease(t, c, "acked", "COUNT", 100, "VISIBILITY", 3_600_000)
		if len(got) == 0 {
			t.Fatalf("%d messages are left, and none comes", n)
		}
		for _, d := range got {
			n -= int(kit.Do(t, c, "FILA.ACK", "acked", d.receipt).(int64))
		}
	}
	kit.Do(t, c, "FILA.PURGE", "purged")
	kit.Do(t, c, "FILA.QUEUE", "DELETE", "deleted", "FORCE")
	testkit.Eventually(t, "a message can be enqueued into the space that was freed", func() bool {
		return c.Do(t.Context(), "FILA.ENQUEUE", "acked", payload).Err() == nil
	})
	kit.Kill(t, b)
	kit.Start(t, b)
	c = kit.Connect(t, b.Addr(), 3)
	if kept, acked := depth(t, c, "kept"), depth(t, c, "acked"); kept != stored["kept"] || acked != 1 {
		t.Errorf("%d messages are kept, want %d; %d were enqueued, want 1", kept, stored["kept"], acked)
	}
}

func depth(t *testing.T, c *redis.Client, queue string) int {
	t.Helper()
	return int(kit.Mapped(t, kit.Do(t, c, "FILA.STATS", queue))["ready"].(int64))
}
