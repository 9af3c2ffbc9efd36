package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Workload is a kind of load.
type Workload string

// The workloads.
const (
	Enqueue Workload = "enqueue" // enqueue only
	Cycle   Workload = "cycle"   // enqueue a batch, lease as many messages, ack them
	Wait    Workload = "wait"    // enqueue to waiting consumers; measures the time until delivery
	Drain   Workload = "drain"   // lease and ack a backlog until it is empty
)

// Workloads returns all workloads.
func Workloads() []Workload { return []Workload{Cycle, Enqueue, Wait, Drain} }

// Rate is the rate of an open loop; the zero value means a closed loop.
type Rate struct {
	PerSecond float64 // messages
	Share     float64 // fraction of the greatest rate, which is measured first
}

// ParseRate parses messages per second, such as 50000, or a percentage of the greatest rate, such as
// 70%.
func ParseRate(s string) (Rate, error) {
	percent, share := strings.CutSuffix(s, "%")
	n, err := strconv.ParseFloat(percent, 64)
	switch {
	case s == "" || s == "0":
		return Rate{}, nil
	case err != nil || !(n > 0 && n <= 1e9) || share && n > 100: // also refuses NaN
		return Rate{}, fmt.Errorf("a rate is messages a second as in 50000, or a share of the most as in 70%%, not %q", s)
	case share:
		return Rate{Share: n / 100}, nil
	}
	return Rate{PerSecond: n}, nil
}

func (r Rate) open() bool { return r != Rate{} }

// Options describe a load.
type Options struct {
	Workload Workload
	Shape    Shape
	Conns    int // sessions; for Wait this many producers and this many consumers
	Pipeline int // messages that a session sends, leases and acks at a time
	Rate     Rate
	Warmup   time.Duration
	Duration time.Duration // of a round; Drain runs until the backlog is empty
	Rounds   int
	Backlog  int64 // messages in the queue before the load; for Drain, all messages; none for Wait
}

// Check validates the options.
func (o *Options) Check() error {
	switch {
	case o.Conns < 1 || o.Conns > 10_000:
		return fmt.Errorf("connections must be 1 to 10000, not %d", o.Conns)
	case o.Pipeline < 1 || o.Pipeline > 1000:
		return fmt.Errorf("a pipeline must be 1 to 1000 messages, not %d", o.Pipeline)
	case o.Shape.Payload < 1 || o.Shape.Payload > 16<<20:
		return fmt.Errorf("a payload must be 1 to 16777216 bytes, not %d", o.Shape.Payload)
	case o.Workload == Wait && o.Shape.Payload < stampBytes:
		return fmt.Errorf("a payload must be at least %d bytes to tell when it was sent, not %d", stampBytes, o.Shape.Payload)
	case o.Shape.Keys < 0 || o.Shape.Throttles < 0 || o.Backlog < 0 || o.Warmup < 0:
		return errors.New("keys, throttles, backlog and warm-up must not be negative")
	case o.Duration < 100*time.Millisecond && o.Workload != Drain:
		return fmt.Errorf("a round must last at least 100ms, not %s", o.Duration)
	case o.Rounds < 1:
		return fmt.Errorf("there must be at least one round, not %d", o.Rounds)
	case o.Workload == Wait && o.Backlog > 0:
		return errors.New("wait takes no backlog: consumers that wait have an empty queue")
	case o.Workload == Drain && o.Backlog == 0:
		return errors.New("drain needs a backlog to drain")
	case o.Workload == Drain && o.Rate.open():
		return errors.New("drain goes as fast as it can: it takes no rate")
	}
	return nil
}
