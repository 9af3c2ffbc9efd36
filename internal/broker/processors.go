package broker

import (
	"os"
	"runtime"

	"github.com/faisca/fila/internal/tuning"
)

// leaveProcessor leaves one processor to the store, unless GOMAXPROCS says what the
// operator wants. The threads that write and sync batches, flush and compact are not
// Go's; with as many of Go's beside them as there are processors, both kinds wait for
// each other, and Go's wake and search for work in vain in between: with two
// processors, a seventh of the broker's time.
func leaveProcessor() {
	if tuning.Enabled && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)-1))
	}
}
