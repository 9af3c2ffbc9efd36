//go:build !race

package cluster

import "time"

// testElection is long enough for a leader to stay one while a machine is busy.
const testElection = 200 * time.Millisecond
