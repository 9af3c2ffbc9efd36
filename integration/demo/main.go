// Demo shows Fila at work on this machine's own documentation, and proves that
// nothing was lost.
//
// It starts a broker, enqueues every file below /usr/share/doc with its package
// as fairness key, and lets several worker processes lease, hash and ack them
// through go-redis. On the way it kills the broker twice with SIGKILL and starts
// it again on the same data. In the end it compares what the workers found with
// what sha256sum says: every file is accounted for, or the exit code is 1.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// options is what the flags say.
type options struct {
	tree    string
	bin     string
	workers int
	kills   int
	timeout time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.tree, "tree", "/usr/share/doc", "`directory` whose files are the work; the first directory below it is the fairness key")
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.IntVar(&o.workers, "workers", 4, "worker `processes`")
	flag.IntVar(&o.kills, "kills", 2, "how `often` the broker is killed")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "give up after so `long`")
	name := flag.String("worker", "", "internal: be the worker of this `name`")
	addr := flag.String("addr", "", "internal: where the worker finds the broker")
	flag.Parse()

	harness.Main("demo", func(ctx context.Context) (int, error) {
		if *name != "" {
			return harness.Done(work(ctx, *addr, *name, os.Stdin, os.Stdout))
		}
		return harness.Done(run(ctx, o))
	})
}
