// Backlog measures what a long queue costs: it fills one, and reports how fast
// that went and how much memory the broker has resident; it starts the broker
// again, after a kill and after a stop, and reports how long it takes from exec
// until the first lease is answered; and it drains a part of the queue.
//
// With -churn it fills and drains again and again, each message with a key of its own
// that was never there before, and reports whether memory grows from round to round.
//
// The filling is done with storage.sync=never unless told otherwise: what is
// measured is the length of the queue, not the disk's fsync.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options is what the flags say.
type options struct {
	bin    string
	dir    string
	sync   string
	n      int64
	keys   int
	size   int
	conns  int
	drain  int64
	target bool
	churn  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.StringVar(&o.dir, "dir", "", "`directory` for the data, removed in the end; about twice the messages' size (default a temporary one)")
	flag.StringVar(&o.sync, "sync", "never", "storage.sync of the `broker`")
	flag.Int64Var(&o.n, "n", 1_000_000, "`messages`")
	flag.IntVar(&o.keys, "keys", 100, "fairness `keys`")
	flag.IntVar(&o.size, "size", 256, "`bytes` of a message, at least 8")
	flag.IntVar(&o.conns, "conns", 4, "`connections` that fill and drain")
	flag.Int64Var(&o.drain, "drain", 200_000, "`messages` to lease and ack in the end")
	flag.DurationVar(&o.churn, "churn", 0, "instead of all that, fill and drain for so `long`, each message with a key that was never there before")
	flag.BoolVar(&o.target, "target", false, "exit with 1 when 512 MB resident or 1 s until the first lease are exceeded; with -churn, 1.3 times the first round")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "backlog: %v\n", err)
		os.Exit(1)
	}
}
