package yield

import (
	"runtime"
	"sync"
	"time"
)

// reserve is a processor that Go leaves to other threads, except while long work needs it.
var reserve struct { //nolint:gochecknoglobals // the number of processors is one of the process
	mu      sync.Mutex
	held    bool // there is one
	lent    bool // Go has it now
	borrows int  // long works under way
	back    *time.Timer
}

// lowerAfter is how long Go keeps the processor after the last long work: to change the number
// stops all goroutines for a moment.
const lowerAfter = time.Second

// ReserveProcessor leaves one processor of several to threads that are not Go's, except while
// Breaks tell of long work: on the processors that are left such work, and the collection of
// garbage with it, would keep others waiting. It is called once.
func ReserveProcessor() {
	if runtime.GOMAXPROCS(0) == 1 {
		return
	}
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	reserve.held = true
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - 1)
}

func borrow() {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	if reserve.borrows++; reserve.held && !reserve.lent {
		reserve.lent = true
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}

func endBorrow() {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	if reserve.borrows--; reserve.borrows > 0 || !reserve.lent {
		return
	}
	if reserve.back == nil {
		reserve.back = time.AfterFunc(lowerAfter, lower)
		return
	}
	reserve.back.Reset(lowerAfter)
}

func lower() {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	if reserve.borrows == 0 && reserve.lent {
		reserve.lent = false
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - 1)
	}
}
