package broker

import (
	"os"

	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/internal/yield"
)

// leaveProcessor leaves one processor to the store, unless the operator has set GOMAXPROCS.
// The threads that write batches, sync, flush and compact are not Go's. With as many Go
// threads as processors both kinds wait for each other, and Go's scheduler spins in
// between: with two processors that cost a seventh of the broker's time.
func leaveProcessor() {
	if tuning.Enabled && os.Getenv("GOMAXPROCS") == "" {
		yield.ReserveProcessor()
	}
}
