package integration_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/proc"
)

// TestRepliesThatNobodyReadFillNoMemory has clients send 64 KiB of the commands with the largest
// replies, for messages of 16 MiB and ten thousand keys, and read nothing: gigabytes, if they were all
// made. The process stays below 640 MiB, or 768 MiB in the plain build, where the C library keeps more of
// what RocksDB has freed. It takes some 450 MiB; the peak depends on when garbage is collected.
// A well-behaved client is served throughout; its latency depends on the machine and is only logged.
// It is not parallel: it takes half a gigabyte of memory.
func TestRepliesThatNobodyReadFillNoMemory(t *testing.T) {
	const (
		served = 50 // commands of the other client per kind of command
		keys   = 10_000
	)
	residentMB := int64(640)
	if binary, err := harness.Binary(t.Context()); err != nil {
		t.Fatal(err)
	} else if plain, err := harness.Plain(binary); err != nil {
		t.Fatal(err)
	} else if plain {
		residentMB = 768
	}
	b := kit.Serve(t)
	admin := kit.Connect(t, b.Addr(), 2)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "large", "MAXATTEMPTS", 0)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "keys")
	var ids []string
	for range 10 {
		ids = append(ids, fmt.Sprint(kit.Do(t, admin, "FILA.ENQUEUE", "large", strings.Repeat("x", 16<<20))))
	}
	piped := admin.Pipeline()
	for i := range keys {
		piped.Do(t.Context(), "FILA.ENQUEUE", "keys", "payload", "KEY", fmt.Sprint("tenant-", i))
		if i%100 == 99 {
			piped.Do(t.Context(), "FILA.CONFIG", "SET", fmt.Sprint("key", i), strings.Repeat("v", 8<<10))
		}
		if i%1000 == 999 {
			if _, err := piped.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, command := range []string{
		"FILA.BROWSE large COUNT 10000", "FILA.BROWSE keys COUNT 10000", "FILA.GET large " + ids[0], "FILA.KEYS keys COUNT 10000",
		"FILA.LEASE large COUNT 10", "FILA.LEASE large", "FILA.CONFIG LIST COUNT 10000", "FILA.RESCHEDULE large " + ids[1] + " 1", "COMMAND DOCS", "CLIENT LIST",
		"FILA.EXPLAIN keys KEY tenant-1", "FILA.QUEUE LIST", "INFO everything",
	} {
		c, err := net.Dial("tcp", b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.Write([]byte(strings.Repeat(command+"\r\n", 64<<10/len(command)))) }()
		var times []time.Duration
		for len(times) < served {
			began := time.Now()
			kit.Do(t, admin, "FILA.STATS")
			times = append(times, time.Since(began))
			time.Sleep(5 * time.Millisecond) // time for the broker to process the flood
		}
		use, err := proc.UseOf(b.PID())
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(times)
		t.Logf("%-32.32s %3d MiB, at most %3d; another client waited %v, at most %v", command, use.Resident>>20, use.Peak>>20, times[served/2], times[served-1])
		if use.Peak > residentMB<<20 {
			t.Errorf("%s: %d MiB were in memory, want at most %d", command, use.Peak>>20, residentMB)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
