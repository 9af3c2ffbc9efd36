// Package fault plants one fault into a broker, so that tests can show that the test of the broker
// from outside finds it. A binary built with the tag fault breaks the promise named by the
// environment variable PLANTED_FAULT, or none if it is not set. Without the tag the package wraps
// nothing, and the binary contains none of its texts.
//
//	go build -tags fault -o fila-fault . && PLANTED_FAULT=dropped-ack ./fila-fault
//
// To add a fault: a name and a row in plant.go, a test beside it, and a row in
// TestTortureFindsPlantedFaults with the promise that the torture must report as broken.
// Three faults break no promise but hold the broker in a state, for
// TestHealthTellsTheStatesApart.
package fault

import "github.com/faisca/fila/engine"

// Store is the store of a broker.
type Store interface {
	engine.Store
	Checkpoint(dir string) error
	Close() error
}
