package integration_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestINFOShowsTheSizeOfTheStoreAndTheFreeDisk(t *testing.T) {
	p := start(t)
	addr := p.ready(t)
	c := connect(t, addr, 3)
	figure := func(name string) uint64 {
		t.Helper()
		info, err := c.InfoMap(t.Context(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(info["Persistence"][name], 10, 64)
		if err != nil {
			t.Fatalf("%s: %v in %v", name, err, info)
		}
		return n
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(p.cmd.Dir, &disk); err != nil {
		t.Fatal(err)
	}
	total := disk.Blocks * uint64(disk.Bsize) //nolint:gosec // not negative
	if free := figure("store_free_bytes"); free == 0 || free > total {
		t.Errorf("%d of %d bytes are free", free, total)
	}
	before := figure("store_bytes")
	if before == 0 || before > total {
		t.Errorf("the store takes %d bytes", before)
	}
	const messages, size = 40, 1 << 20
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	for range messages {
		do(t, c, "FILA.ENQUEUE", "q", strings.Repeat("x", size))
	}
	for began := time.Now(); figure("store_bytes") < before+messages*size/4; {
		if time.Since(began) > patience {
			t.Fatalf("%d bytes were enqueued, and the store has grown from %d to %d", messages*size, before, figure("store_bytes"))
		}
		time.Sleep(50 * time.Millisecond)
	}

	memory := connect(t, start(t, "--storage.engine", "memory").ready(t), 3)
	if info := memory.Info(t.Context(), "persistence").Val(); info == "" || strings.Contains(info, "store_") {
		t.Errorf("of a store in memory: %s", info)
	}
}
