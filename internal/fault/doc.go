// Package fault plants one fault into a broker, so that a test of the broker from outside can be
// seen to find it. A binary that is built with the tag fault breaks the promise that the environment
// variable PLANTED_FAULT names, and none if it is not set. Without the tag the package wraps
// nothing, and no text of it is in the binary.
//
//	go build -tags fault -o fila-fault . && PLANTED_FAULT=dropped-ack ./fila-fault
//
// To add a fault: a name and a row in plant.go, a test beside it, and a row in
// TestTortureFindsPlantedFaults that names the promise which the torture must report as broken.
package fault

import "github.com/faisca/fila/engine"

// Store is the store of a broker.
type Store interface {
	engine.Store
	Checkpoint(dir string) error
	Close() error
}
