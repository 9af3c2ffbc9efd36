package integration_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

func TestINFOShowsTheSizeOfTheStoreAndTheFreeDisk(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
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
	if err := syscall.Statfs(b.Dir(), &disk); err != nil {
		t.Fatal(err)
	}
	total := disk.Blocks * uint64(disk.Bsize)
	if free := figure("store_free_bytes"); free == 0 || free > total {
		t.Errorf("%d of %d bytes are free", free, total)
	}
	before := figure("store_bytes")
	if before == 0 || before > total {
		t.Errorf("the store takes %d bytes", before)
	}
	const messages, size = 40, 1 << 20
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	for range messages {
		kit.Do(t, c, "FILA.ENQUEUE", "q", strings.Repeat("x", size))
	}
	testkit.Eventually(t, "the size of the store shows what was enqueued", func() bool {
		return figure("store_bytes") >= before+messages*size/4
	})

	memory := kit.Connect(t, kit.Serve(t, "--storage.engine", "memory").Addr(), 3)
	if info := memory.Info(t.Context(), "persistence").Val(); info == "" || strings.Contains(info, "store_") {
		t.Errorf("of a store in memory: %s", info)
	}
}
