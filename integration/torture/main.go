// Torture runs many clients against a broker that is repeatedly killed, or whose power is cut, and
// verifies the broker by its replies.
//
// Producers and consumers record every call and its reply. At random moments the broker ends
// without warning and is started again on its remaining data. Finally the queues are drained and
// the history is checked against the contract (package history). The last line is the verdict; the
// exit code is 1 if a promise was broken.
//
// With -nodes 3 or 5 the broker is a cluster: nodes are killed, stopped, cut off, told to hand over, get a
// full, an empty or an old disk, one or two at a time, or all are killed. In the end they must be idle, and their
// stores are compared.
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

// options are the values of the flags.
type options struct {
	bin        string
	nodes      int
	length     time.Duration
	harms      int
	work       int
	calm       time.Duration
	by         string
	sync       string
	interval   time.Duration
	leaseLag   time.Duration
	election   time.Duration
	heal       time.Duration
	logBytes   int
	producers  int
	consumers  int
	askers     int
	ordered    int
	deliveries int
	rate       int
	large      int
	seed       uint64
	keep       bool
	scatter    bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.DurationVar(&o.length, "t", 2*time.Minute, "`duration` of the torture")
	flag.IntVar(&o.harms, "n", 0, "`number` of crashes after which it ends earlier; 0: any")
	flag.IntVar(&o.work, "work", 0, "least `number` of deliveries between two crashes, however long they take on a busy machine")
	flag.DurationVar(&o.calm, "calm", 4*time.Second, "mean `time` between two crashes")
	flag.StringVar(&o.by, "by", "", "the `fault`: kill, the process is killed; power, the power is cut, and unsynced data is lost or torn; "+
		"full, a file system runs out of space (requires the right to mount); no-space, writes fail with ENOSPC; io-error, syncs fail. "+
		"With -nodes 3 or 5 several, separated by commas: kill, stop, wipe, partition, silence (packets are dropped for more than 15 s), bridge (two nodes "+
		"do not reach each other), down, transfer, full, row (disks are lost one after the other), old (an old copy of a disk comes back); or power alone, "+
		"which needs a broker built with the tag fault. Default: kill, or all of them but power")
	flag.IntVar(&o.nodes, "nodes", 1, "1: a single broker; 3 or 5: the nodes of a cluster, which `clients` are spread over")
	flag.DurationVar(&o.heal, "heal", 0, "the longest `time` in which all nodes must serve after a fault that ends no process; 0: any")
	flag.StringVar(&o.sync, "sync", "always", "storage.sync of the broker: always, interval or never")
	flag.DurationVar(&o.interval, "interval", 100*time.Millisecond, "its storage.sync_interval_ms")
	flag.DurationVar(&o.leaseLag, "lag", 5*time.Millisecond, "its storage.lease_lag_ms")
	flag.DurationVar(&o.election, "election", 0, "cluster.election_ms of nodes; so little that a busy machine elects without a reason is worth trying; 0: the default")
	flag.IntVar(&o.logBytes, "log-bytes", 0, "cluster.log_bytes of nodes; 0: little enough that the log is cut off")
	flag.IntVar(&o.producers, "producers", 6, "number of producers")
	flag.IntVar(&o.consumers, "consumers", 10, "number of consumers")
	flag.IntVar(&o.askers, "askers", 8, "number of clients that ask for results")
	flag.IntVar(&o.ordered, "ordered", 25, "share of the ordered queue in `percent`")
	flag.IntVar(&o.deliveries, "deliveries", 0, "`number` of deliveries of the ordered queue after which it ends earlier; 0: any")
	flag.IntVar(&o.rate, "rate", 2000, "maximum of messages enqueued per second")
	flag.IntVar(&o.large, "large", 300, "one message in `number` has up to 600,000 bytes, the others up to 600")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "random seed; scheduling and timing still vary")
	flag.BoolVar(&o.scatter, "scatter", false, "power cuts keep arbitrary pages of unsynced data instead of a prefix; the broker may then refuse to start, which ends the run")
	flag.BoolVar(&o.keep, "keep", false, "keep the broker's directory even after a successful run")
	flag.Parse()

	redis.SetLogger(silence{}) // connection errors are expected
	harness.Main("torture", func(ctx context.Context) (int, error) { return harness.Verdict(run(ctx, o)) })
}

// The faults.
const (
	byKill    = "kill"
	byPower   = "power"
	byFull    = "full"
	byNoSpace = "no-space"
	byIOError = "io-error"

	// Of nodes alone.
	byStop      = "stop"
	byWipe      = "wipe"
	byPartition = "partition"
	bySilence   = "silence"
	byBridge    = "bridge"
	byRow       = "row"
	byOld       = "old"
	byDown      = "down"
	byTransfer  = "transfer"
)

// silence is a logger for go-redis.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// mode returns the checker's constant for storage.sync.
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
