package broker

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/faisca/fila/engine"
)

// What is new is refused before a container or Go's limit is reached, and taken again only when there is some room.
func TestWhatIsNewIsRefusedBeforeTheMemoryIsUsedUp(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const mib = 1 << 20
	use, group, failure := memoryUse{}, uint64(0), error(memlimit.ErrNoLimit)
	m := &memory{measure: func() memoryUse { return use }, container: func() (uint64, error) { return group, failure }}
	for _, x := range []struct {
		what       string
		configured int64
		group      uint64
		failure    error
		use        memoryUse
		want       engine.Memory
	}{
		{"no limit", 0, 0, memlimit.ErrNoLimit, memoryUse{live: 900 * mib}, engine.Memory{Used: 900 * mib}},
		{"no control group", 0, 0, memlimit.ErrNoCgroup, memoryUse{live: 900 * mib}, engine.Memory{Used: 900 * mib}},
		{"a group without a limit", 0, math.MaxUint64, nil, memoryUse{live: 900 * mib}, engine.Memory{Used: 900 * mib}},
		{"Go's limit is far", 1000 * mib, 0, memlimit.ErrNoLimit, memoryUse{live: 849 * mib}, engine.Memory{Used: 849 * mib, Limit: 1000 * mib}},
		{"and is near", 1000 * mib, 0, memlimit.ErrNoLimit, memoryUse{live: 850 * mib}, engine.Memory{Used: 850 * mib, Limit: 1000 * mib, Full: true}},
		{"and still is", 1000 * mib, 0, memlimit.ErrNoLimit, memoryUse{live: 801 * mib}, engine.Memory{Used: 801 * mib, Limit: 1000 * mib, Full: true}},
		{"and has room", 1000 * mib, 0, memlimit.ErrNoLimit, memoryUse{live: 799 * mib}, engine.Memory{Used: 799 * mib, Limit: 1000 * mib}},
		{"a container", 0, 1000 * mib, nil, memoryUse{live: 400 * mib, taken: 500 * mib, anon: 600 * mib}, engine.Memory{Used: 400 * mib, Limit: 800 * mib}},
		{"of which RocksDB takes more", 0, 1000 * mib, nil, memoryUse{live: 400 * mib, taken: 500 * mib, anon: 930 * mib}, engine.Memory{Used: 400 * mib, Limit: 470 * mib, Full: true}},
		{"whose limit cannot be read", 0, 0, errors.New("no file"), memoryUse{live: 100 * mib, taken: 500 * mib, anon: 930 * mib}, engine.Memory{Used: 100 * mib, Limit: 470 * mib}},
		{"of which RocksDB takes nearly all", 0, 1000 * mib, nil, memoryUse{live: 100 * mib, taken: 200 * mib, anon: 1100 * mib}, engine.Memory{Used: 100 * mib, Limit: 250 * mib}},
		{"the lower of two limits", 300 * mib, 1000 * mib, nil, memoryUse{live: 100 * mib, taken: 200 * mib, anon: 200 * mib}, engine.Memory{Used: 100 * mib, Limit: 300 * mib}},
	} {
		m.configured, use, group, failure = x.configured, x.use, x.group, x.failure
		m.look()
		if got := m.state(); got != x.want {
			t.Errorf("%s: %+v, want %+v", x.what, got, x.want)
		}
		if x.want.Limit > 0 && debug.SetMemoryLimit(-1) != x.want.Limit {
			t.Errorf("%s: Go's limit is %d, want %d", x.what, debug.SetMemoryLimit(-1), x.want.Limit)
		}
	}
}

func TestTheMemoryOfThisProcessIsMeasured(t *testing.T) {
	use := measureMemory()
	if use.live <= 0 || use.live > use.taken || use.taken > 100<<30 {
		t.Errorf("%+v", use)
	}
}
