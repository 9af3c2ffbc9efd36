// Fila is a message broker that speaks the Redis protocol. This package wires
// the others together: what a subcommand needs is made here and handed in.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/faisca/fila/cli"
)

func main() {
	os.Exit(cli.Main(untilSignal(), cli.Program{Serve: serve, Check: check, Repair: repair, Restore: restore, RocksDB: rocksVersion()}, cli.Process{
		Args:    os.Args[1:],
		Environ: os.Environ(),
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	}))
}

// untilSignal is a context that ends with the first signal to stop. The second
// one ends the process there and then: whoever sends it has waited enough. That
// is safe, as it is what a crash would be, and no more than that.
func untilSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		stop()
		<-signals
		fmt.Fprintln(os.Stderr, "fila: second signal: ended at once")
		os.Exit(1)
	}()
	return ctx
}
