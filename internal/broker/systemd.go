package broker

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
)

// supervisor tells systemd how the broker is, by the protocol of sd_notify(3): a datagram
// to the socket that NOTIFY_SOCKET names. Without one there is no supervisor, and nothing
// is sent.
type supervisor struct {
	socket   string        // empty: none
	watchdog time.Duration // within which systemd wants a sign of life; zero: it does not
	log      zerolog.Logger
}

// newSupervisor reads what systemd has put into the environment.
func newSupervisor(env func(string) string, log zerolog.Logger) supervisor {
	s := supervisor{socket: env("NOTIFY_SOCKET"), log: log}
	usec, err := strconv.ParseInt(env("WATCHDOG_USEC"), 10, 64)
	pid := env("WATCHDOG_PID")
	if s.socket != "" && err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	return s
}

// say sends a state. A supervisor that cannot be told is no reason to stop: it acts as if
// nothing was said.
func (s supervisor) say(state string) {
	if s.socket == "" {
		return
	}
	// A name that begins with @ is in the abstract namespace, for Go as for systemd.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		s.log.Warn().Err(err).Str("state", state).Msg("systemd cannot be notified")
	}
}

// feed keeps the watchdog quiet for as long as tasks go through the engine's loop, until ctx
// ends. A loop that is stuck feeds nothing, and systemd ends the process. A commit that does
// not end is no such case: read-only tasks are answered all the same, and a restart
// would not repair the disk.
func (s supervisor) feed(ctx context.Context, e *engine.Engine) {
	if s.watchdog == 0 {
		return
	}
	again := time.NewTicker(s.watchdog / 3) // so that one that comes late is no harm
	defer again.Stop()
	for {
		if !pass(ctx, e) {
			return
		}
		s.say("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// pass returns true when a task has gone through the loop, false when ctx ends before.
func pass(ctx context.Context, e *engine.Engine) bool {
	done := make(chan struct{}, 1)
	task := &engine.Task{Call: signOfLife{}, ReadOnly: true, Client: engine.NewClient(0, func() {
		select {
		case done <- struct{}{}:
		default:
		}
	})}
	e.Submit([]*engine.Task{task})
	select {
	case <-done:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// signOfLife is a call that does nothing.
type signOfLife struct{}

// Apply implements engine.Call.
func (signOfLife) Apply(*engine.Tx) error { return nil }
