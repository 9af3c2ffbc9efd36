package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a program until it returns, prints its error and exits with its code. The first SIGINT
// or SIGTERM cancels the context.
func Main(name string, run func(context.Context) (code int, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(code)
}

// Exit codes of programs that judge a broker.
const (
	Kept   = 0 // every promise was kept
	Broken = 1 // a promise was broken
	Failed = 2 // there is no verdict
)

// Verdict returns the exit code of a judgement; a non-nil err means that there is no verdict.
func Verdict(kept bool, err error) (int, error) {
	switch {
	case err != nil:
		return Failed, err
	case !kept:
		return Broken, nil
	}
	return Kept, nil
}

// Done returns the exit code of a program that has no verdict but its error.
func Done(err error) (int, error) {
	if err != nil {
		return Broken, err
	}
	return Kept, nil
}
