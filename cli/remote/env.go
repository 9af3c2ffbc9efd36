package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/faisca/fila/internal/client"
)

// Env is what a command sees of the process it runs in.
type Env struct {
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// Terminal says whether standard output is a terminal.
	Terminal bool
	// Zone is that of the times in tables; nil: UTC.
	Zone *time.Location
	// Password asks on the terminal, and does not show the answer; nil where there is no
	// terminal.
	Password func(question string) (string, error)
	// Confirm asks on the terminal; nil where there is none.
	Confirm func(question string) (bool, error)
}

// UsageError is an error in the arguments or the configuration. Nothing was changed.
type UsageError struct{ Err error }

// Error is one line, whatever was given.
func (e UsageError) Error() string { return oneLine(e.Err.Error()) }

func (e UsageError) Unwrap() error { return e.Err }

func usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// MissingError says that something that was named is not there.
type MissingError struct{ What string }

func (e MissingError) Error() string { return e.What }

// ErrFindings ends a command that has found something; it has printed what.
var ErrFindings = errors.New("there are findings")

// errDeclined ends a command whose question was not answered with yes.
var errDeclined = errors.New("not done: it was not confirmed")

// Missing says whether an error is that something which was named is not there.
func Missing(err error) bool {
	if _, ok := errors.AsType[MissingError](err); ok {
		return true
	}
	return client.Refused(err, "NOQUEUE", "NOMSG", "NOBUDGET", "NOGROUP")
}

// explained is an error as a person can act on it.
func explained(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.Is(err, client.ErrClosed):
		return fmt.Errorf("%w before it answered; whether the command was executed is not known", err)
	case client.Refused(err, "NOAUTH"):
		return fmt.Errorf("the broker needs a password: set %s, or put user and password into %s", passwordVariable, urlVariable)
	}
	return err
}
