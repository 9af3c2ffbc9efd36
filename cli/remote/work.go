package remote

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faisca/fila/cli/worker"
)

func workRows() []row {
	return []row{{
		name: "work", args: "QUEUE -- PROGRAM [ARG...]", short: "Run a program for each message of a queue",
		long: `Leases messages and runs PROGRAM for each, with the payload on standard input and in its
environment FILA_MESSAGE_ID, _QUEUE, _KEY, _ATTEMPT, _DELIVERIES, _ENQUEUED_AT, and
_HEADER_NAME for each header. It does not inherit FILA_URL and FILA_AUTH__PASSWORD.

Exit code 0 acks the message. Any other end nacks it, with the last line of standard
error as its error; one of --dead-on makes it dead at once. Its lease is extended while
the program runs. When the lease is lost, the program gets SIGTERM.

A signal lets programs that run finish, and gives back what none has begun. A second one
ends fila at once; the messages are delivered again when their leases are over. When
the broker is gone, fila work connects again, also to report what has ended meanwhile.`,
		run: (*call).work,
		options: append(
			workerOptions("run `n` programs at a time; 1 unless it is given"),
			option{"dead-on", "", text, "exit `codes`, separated by commas, after which a message is not tried again"},
		),
		examples: []string{"fila work orders --once -- ./resize.sh --width 200", "fila work orders --max 1 --dead-on 64,65 -- sh -c 'cat > \"$FILA_MESSAGE_ID\"'"},
	}}
}

// workerOptions are the options of what works on messages.
func workerOptions(concurrency string) []option {
	return []option{
		{"concurrency", "", number, concurrency},
		{"max", "", number, "end after `n` messages"},
		{"once", "", yes, "end when no message is ready"},
		{"visibility", "", millis, "the `duration` of a lease, which is extended as long as the work lasts; that of the queue"},
		{"consumer", "", text, "the `name` that fila get shows"},
	}
}

// work runs a program for each message.
func (c *call) work() error {
	p := &worker.Program{
		Command: append(c.args["PROGRAM"], c.args["ARG"]...), Environ: c.env.Environ, Stdout: c.env.Stdout, Stderr: c.env.Stderr,
	}
	if c.given("dead-on") {
		for code := range strings.SplitSeq(c.text("dead-on"), ",") {
			n, err := strconv.Atoi(strings.TrimSpace(code))
			if err != nil || n < 1 || n > 255 {
				return usagef("--dead-on must be exit codes from 1 to 255, separated by commas, not %q", c.text("dead-on"))
			}
			p.DeadOn = append(p.DeadOn, n)
		}
	}
	if _, err := exec.LookPath(p.Command[0]); err != nil {
		return usagef("the program cannot be run: %w", err)
	}
	return c.works(p, 1)
}

// works has a worker do the task, as many at a time as --concurrency says.
func (c *call) works(task worker.Task, concurrency int) error {
	w := &worker.Worker{
		Dial: c.broker.Dial, Queue: c.arg("QUEUE"), Task: task, Concurrency: concurrency,
		Max: c.number("max"), Once: c.is("once"), Visibility: c.duration("visibility"), Consumer: c.text("consumer"),
	}
	if c.given("concurrency") {
		w.Concurrency = int(c.number("concurrency"))
	}
	switch {
	case w.Concurrency < 1 || w.Concurrency > concurrencyMax:
		return usagef("--concurrency must be from 1 to %d, not %d", concurrencyMax, w.Concurrency)
	case w.Max < 0:
		return usagef("--max must not be negative, and %d is", w.Max)
	case c.given("visibility") && w.Visibility < visibilityMin:
		return usagef("--visibility must be at least %s, not %s", visibilityMin, w.Visibility)
	}
	var mu sync.Mutex
	w.Log = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(c.env.Stderr, "fila: "+oneLine(line))
	}
	summary, err := w.Run(c.ctx)
	if err != nil && c.ctx.Err() != nil {
		err = nil // it was stopped
	}
	if err == nil && c.env.Terminal {
		w.Log(fmt.Sprintf("%d done, %d failed, %d lost", summary.Done, summary.Failed, summary.Lost))
	}
	return err
}

const (
	concurrencyMax = 1024
	visibilityMin  = 100 * time.Millisecond // it is extended each third of it
)
