package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Program is the task that runs a program for each message: exit code 0 is success, one of DeadOn makes the message dead,
// and the last line of standard error is the reason of a failure.
type Program struct {
	Command []string // the program and its arguments
	Environ []string // of the program, beside the variables of the message
	DeadOn  []int    // exit codes after which a message is not tried again

	Stdout io.Writer
	Stderr io.Writer
}

const (
	// endTime is how long a child has between SIGTERM and SIGKILL when its lease is lost, and how
	// long its own children may keep its standard error open.
	endTime = 5 * time.Second
	// failureMax bounds the text of a failure, in bytes.
	failureMax = 1000
)

// Do runs the program. It ends on its own, or when ctx does.
func (p *Program) Do(ctx context.Context, m *Message) Result {
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...) //nolint:gosec // it is what the person has asked for
	cmd.Env = environment(p.Environ, m)
	cmd.Stdin = strings.NewReader(m.Payload)
	last := &lastLine{to: p.Stderr}
	cmd.Stdout = p.Stdout
	cmd.Stderr = last
	cmd.Cancel = func() error { return terminate(cmd.Process) }
	cmd.WaitDelay = endTime
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return Result{NotStarted: err}
	}
	err := cmd.Wait()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return Result{} // errors of copying do not count
	}
	failure := last.String()
	if failure == "" {
		failure = ending(err)
	}
	return Result{Failure: failure, Dead: slices.Contains(p.DeadOn, cmd.ProcessState.ExitCode())}
}

// ending says how a process has ended that has written nothing.
func ending(err error) string {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err.Error()
	}
	if code := exit.ExitCode(); code >= 0 {
		return fmt.Sprintf("exit status %d", code)
	}
	return "ended by " + exit.String()
}

// Variables that a child gets, and those that it does not inherit: a program that works on
// messages has no business with the broker.
const (
	messageVariables = "FILA_MESSAGE_"
	headerVariables  = messageVariables + "HEADER_"
)

func secretVariables() []string { return []string{"FILA_URL", "FILA_AUTH__PASSWORD"} }

// environment is that of a child. What holds a zero byte cannot be a variable and is left out.
func environment(base []string, m *Message) []string {
	var all []string
	for _, pair := range base {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.Contains(secretVariables(), name) && !strings.HasPrefix(name, messageVariables) {
			all = append(all, pair)
		}
	}
	add := func(name, value string) {
		if !strings.Contains(value, "\x00") {
			all = append(all, name+"="+value)
		}
	}
	add(messageVariables+"ID", m.ID)
	add(messageVariables+"QUEUE", m.Queue)
	add(messageVariables+"KEY", m.Key)
	add(messageVariables+"ATTEMPT", strconv.FormatInt(m.Attempt, 10))
	add(messageVariables+"DELIVERIES", strconv.FormatInt(m.Deliveries, 10))
	add(messageVariables+"ENQUEUED_AT", strconv.FormatInt(m.EnqueuedAt, 10))
	for i := 0; i+1 < len(m.Headers); i += 2 {
		add(headerVariables+variable(m.Headers[i]), m.Headers[i+1])
	}
	return all
}

// variable is the name of a header as that of a variable: X-Trace.id becomes X_TRACE_ID.
func variable(header string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, header)
}

// lastLine keeps the last line that is not empty of what is written to it.
type lastLine struct {
	to         io.Writer // what is written goes there as well
	line, last []byte
}

// Write takes the bytes, and hands them on.
func (l *lastLine) Write(b []byte) (int, error) {
	for _, c := range b {
		switch {
		case c == '\n':
			if len(bytes.TrimSpace(l.line)) > 0 {
				l.last = append(l.last[:0], l.line...)
			}
			l.line = l.line[:0]
		case len(l.line) < failureMax:
			l.line = append(l.line, c)
		}
	}
	return l.to.Write(b)
}

func (l *lastLine) String() string {
	if text := bytes.TrimSpace(l.line); len(text) > 0 {
		return string(text)
	}
	return string(bytes.TrimSpace(l.last))
}
