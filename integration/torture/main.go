// Torture lets many clients work with a broker that is killed again and again, or
// whose power is cut, and judges it by what it has told them.
//
// Producers and consumers note every call and its answer; at random moments the
// broker ends without warning and is started again on what is left of its data. In
// the end the queues are drained, and the history is held to the contract (package
// history). The last line is the verdict; the exit code is 1 if a promise was broken.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/history"
)

// options is what the flags say.
type options struct {
	bin       string
	length    time.Duration
	calm      time.Duration
	by        string
	sync      string
	interval  time.Duration
	leaseLag  time.Duration
	producers int
	consumers int
	rate      int
	seed      uint64
	keep      bool
	scatter   bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.DurationVar(&o.length, "t", 2*time.Minute, "how `long` the broker is tortured")
	flag.DurationVar(&o.calm, "calm", 4*time.Second, "the mean `time` between two crashes")
	flag.StringVar(&o.by, "by", byKill, "what `happens`: kill, of the process; power, cut, so that what was not synced is lost or torn; "+
		"full, a disk without space, which needs the right to mount; no-space, writes that fail as if; io-error, syncs that fail")
	flag.StringVar(&o.sync, "sync", "always", "the broker's storage.sync: always, interval or never")
	flag.DurationVar(&o.interval, "interval", 100*time.Millisecond, "its storage.sync_interval_ms")
	flag.DurationVar(&o.leaseLag, "lag", 5*time.Millisecond, "its storage.lease_lag_ms")
	flag.IntVar(&o.producers, "producers", 6, "clients that enqueue")
	flag.IntVar(&o.consumers, "consumers", 10, "clients that lease")
	flag.IntVar(&o.rate, "rate", 2000, "messages enqueued per second, at most")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what chance decides; what the broker and the machine do is up to them")
	flag.BoolVar(&o.scatter, "scatter", false, "power cuts keep any pages of what was not synced, not only a beginning; the broker may refuse to start then, which ends the run")
	flag.BoolVar(&o.keep, "keep", false, "keep the broker's directory, also when all was well")
	flag.Parse()

	redis.SetLogger(silence{}) // that the broker is away is what this is about
	harness.Main("torture", func(ctx context.Context) (int, error) { return harness.Verdict(run(ctx, o)) })
}

// What happens to the broker.
const (
	byKill    = "kill"
	byPower   = "power"
	byFull    = "full"
	byNoSpace = "no-space"
	byIOError = "io-error"
)

// silence is a logger for go-redis.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// mode is the checker's word for storage.sync.
func (o *options) mode() (history.Sync, error) {
	switch o.sync {
	case "always":
		return history.SyncAlways, nil
	case "interval":
		return history.SyncInterval, nil
	case "never":
		return history.SyncNever, nil
	}
	return 0, fmt.Errorf("-sync %s: want always, interval or never", o.sync)
}
