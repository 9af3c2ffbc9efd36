//go:build race

package cluster

import "time"

// testElection is long enough for a leader to stay one while a busy machine and the race detector keep a node from
// its turn.
const testElection = 500 * time.Millisecond
