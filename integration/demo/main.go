// Demo runs Fila on the documentation files of this machine and proves that no message is lost.
//
// It starts a broker, enqueues every file below /usr/share/doc with its package as fairness key,
// and runs several worker processes that lease, hash and ack the files through go-redis. Meanwhile
// it kills the broker twice with SIGKILL and restarts it on the same data. Finally it compares the
// workers' results with those of sha256sum: if a file is not accounted for, the exit code is 1.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// options are the values of the flags.
type options struct {
	tree    string
	bin     string
	workers int
	kills   int
	timeout time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.tree, "tree", "/usr/share/doc", "`directory` of the files to hash; the first directory below it is the fairness key")
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.IntVar(&o.workers, "workers", 4, "worker `processes`")
	flag.IntVar(&o.kills, "kills", 2, "`number` of times to kill the broker")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "give up after this `duration`")
	name := flag.String("worker", "", "internal: run as the worker of this `name`")
	addr := flag.String("addr", "", "internal: address of the broker")
	flag.Parse()

	harness.Main("demo", func(ctx context.Context) (int, error) {
		if *name != "" {
			return harness.Done(work(ctx, *addr, *name, os.Stdin, os.Stdout))
		}
		return harness.Done(run(ctx, o))
	})
}
