// Package broker wires the packages of Fila into the program. It builds what each
// subcommand needs, and starts and stops the parts in order.
package broker

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/internal/broker/compat"
	"github.com/faisca/fila/storage/rocks"
)

// Main runs the program with the arguments of the process and returns its exit code.
func Main() int {
	return cli.Main(untilSignal(), program(), cli.Process{
		Args:     os.Args[1:],
		Environ:  os.Environ(),
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Hangups:  hangups,
		Password: askPassword(),
		Confirm:  askConfirmation(),
	})
}

// reference returns what `fila commands` shows: the reference of commands in Markdown.
func reference() string { return compat.Markdown(commands.Describe(), commands.RedisVersion) }

// program is what the subcommands of the binary run.
func program() cli.Program {
	return cli.Program{Serve: serve, Users: checkUsers, Check: check, Repair: repair, Restore: restore, Detach: detach, Recover: recoverNode, Commands: reference, RocksDB: rocks.Version()}
}

// hangups returns a channel of SIGHUPs; nil if the process was started with SIGHUP ignored,
// as nohup does.
func hangups() <-chan os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return nil
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT. A second one
// ends the process.
func untilSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		stopTwice(signals, stop)
		fmt.Fprintln(os.Stderr, "fila: second signal: exiting immediately")
		os.Exit(1)
	}()
	return ctx
}

// sameSignal is how long after a signal to stop another one counts as the same: a
// supervisor and the process group that it stops may each deliver one.
const sameSignal = time.Second

// stopTwice calls stop at the first signal and returns at the second; signals within sameSignal of
// the first are ignored, however late this goroutine reads them. Exiting then is as safe as a crash.
func stopTwice(signals <-chan os.Signal, stop func()) {
	<-signals
	stop()
	<-time.After(sameSignal)
	for len(signals) > 0 {
		<-signals
	}
	<-signals
}
