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

// supervisor notifies systemd by the protocol of sd_notify(3): datagrams to the socket
// named by NOTIFY_SOCKET. Without that variable it sends nothing.
type supervisor struct {
	socket   string        // empty: none
	watchdog time.Duration // the watchdog timeout of systemd; 0: none
	log      zerolog.Logger
}

// newSupervisor reads the environment that systemd sets.
func newSupervisor(env func(string) string, log zerolog.Logger) supervisor {
	s := supervisor{socket: env("NOTIFY_SOCKET"), log: log}
	usec, err := strconv.ParseInt(env("WATCHDOG_USEC"), 10, 64)
	pid := env("WATCHDOG_PID")
	if s.socket != "" && err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	return s
}

// say sends a state. A failure is logged only: the broker works without a supervisor.
func (s supervisor) say(state string) {
	if s.socket == "" {
		return
	}
	// A name that begins with @ is in the abstract namespace, in Go as in systemd.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		s.log.Warn().Err(err).Str("state", state).Msg("systemd cannot be notified")
	}
}

// feed sends the watchdog's keep-alive as long as tasks pass through the engine's loop,
// until ctx ends. If the loop is stuck, systemd restarts the process. A commit that hangs
// does not stop the keep-alive: read-only tasks still pass, and a restart would not repair
// the disk.
func (s supervisor) feed(ctx context.Context, e submitter) {
	if s.watchdog == 0 {
		return
	}
	again := time.NewTicker(s.watchdog / 3) // tolerates one that is late
	defer again.Stop()
	for {
		if !pass(ctx, e, signOfLife{}) {
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

// submitter takes tasks: an engine or a seat.
type submitter interface{ Submit(tasks []*engine.Task) }

// pass sends a task through the loop. It returns false if ctx ends before.
func pass(ctx context.Context, e submitter, call engine.Call) bool {
	done := make(chan struct{}, 1)
	task := &engine.Task{Call: call, ReadOnly: true, Client: engine.NewClient(0, func() {
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

// signOfLife is a call without effect.
type signOfLife struct{}

// Apply implements engine.Call.
func (signOfLife) Apply(*engine.Tx) error { return nil }
