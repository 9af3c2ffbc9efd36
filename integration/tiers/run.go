package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// phase is one command of a tier.
type phase struct {
	name  string
	needs []string // phases that come first
	alone bool     // nothing runs beside it
	root  bool     // it takes root: it mounts, boots or installs
	dir   string   // below the root; "" is the root
	env   []string // in addition to the environment
	args  []string // the command
}

// result is how a phase went.
type result struct {
	phase   string
	state   state
	took    time.Duration
	cpu     time.Duration // of all its processes that have ended, in user and system mode
	counts  counts
	tests   []test // the slowest
	failure []byte // the output of what has failed
}

type state string

const (
	passed  state = "ok"
	failed  state = "FAILED"
	left    state = "not run" // what it needs has failed, or the run was interrupted
	earlier state = "earlier" // passed with the same sources in a run before
	user    state = "needs root"
)

// fine reports whether a phase has not failed.
func (s state) fine() bool { return s == passed || s == earlier || s == user }

// counts are of tests, without the parts of tests.
type counts struct{ Passed, Failed, Skipped int }

func (c counts) plus(o counts) counts {
	return counts{c.Passed + o.Passed, c.Failed + o.Failed, c.Skipped + o.Skipped}
}

// test is one test function.
type test struct {
	pkg, name string
	took      time.Duration
}

// slowestOf is the number of tests that a table lists.
const slowestOf = 10

// run runs the phases of a tier.
type run struct {
	root, tier string
	logs       string // directory of the phases' output
	out        io.Writer
	memory     *memory // of phases that have passed; nil: each phase runs

	mu      sync.Mutex
	begun   map[string]time.Time // phases under way
	results map[string]result
	width   int // of the line of progress on the terminal
}

// phases runs all of them, as many at a time as there are lanes, and prints how they went.
func (r *run) phases(ctx context.Context, all []phase, lanes int) (ok bool, err error) {
	if err := os.MkdirAll(r.logs, 0o755); err != nil {
		return false, err
	}
	r.begun, r.results = map[string]time.Time{}, map[string]result{}
	began := time.Now()
	progress := r.progress()
	done := make(chan result)
	waiting, running, alone := slices.Clone(all), 0, false
	for len(waiting) > 0 || running > 0 {
		next := -1
		if running < lanes && !alone {
			next = r.next(ctx, waiting, running)
		}
		if next >= 0 {
			p := waiting[next]
			waiting = slices.Delete(waiting, next, next+1)
			running, alone = running+1, p.alone
			go func() { done <- r.phase(ctx, p) }()
			continue
		}
		if running == 0 {
			break // interrupted, or what the rest needs has failed
		}
		res := <-done
		running, alone = running-1, false
		r.finish(res)
	}
	progress()
	for _, p := range waiting {
		r.results[p.name] = result{phase: p.name, state: left}
	}
	var ordered []result
	for _, p := range all {
		ordered = append(ordered, r.results[p.name])
	}
	report(r.out, r.tier, ordered, time.Since(began))
	return !slices.ContainsFunc(ordered, func(res result) bool { return !res.state.fine() }), ctx.Err()
}

// next returns the index of the phase that may begin beside those that run; -1: none may.
func (r *run) next(ctx context.Context, waiting []phase, running int) int {
	if ctx.Err() != nil {
		return -1
	}
	return slices.IndexFunc(waiting, func(p phase) bool {
		if p.alone && running > 0 {
			return false
		}
		return !slices.ContainsFunc(p.needs, func(name string) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return !r.results[name].state.fine()
		})
	})
}

// finish keeps the result of a phase and says it.
func (r *run) finish(res result) {
	r.mu.Lock()
	r.results[res.phase] = res
	r.mu.Unlock()
	r.say("%-10s %-8s %6.1f s %7.1f s of CPU%s", res.phase, res.state, res.took.Seconds(), res.cpu.Seconds(), res.counts.suffix())
}

func (c counts) suffix() string {
	if c == (counts{}) {
		return ""
	}
	return fmt.Sprintf(", %d tests", c.Passed+c.Failed)
}

// say prints a line in place of the line of progress.
func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.width > 0 {
		fmt.Fprintf(r.out, "\r%*s\r", r.width, "")
		r.width = 0
	}
	fmt.Fprintf(r.out, format+"\n", args...)
}

// progress shows what is under way, each second on a terminal, until the function that it returns is called.
func (r *run) progress() (stop func()) {
	f, isFile := r.out.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
				r.line(f)
			}
		}
	})
	return func() { close(ended); running.Wait() }
}

func (r *run) line(f *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for name, begun := range r.begun {
		parts = append(parts, fmt.Sprintf("%s %v", name, time.Since(begun).Round(time.Second)))
	}
	slices.Sort(parts)
	text := "running: " + strings.Join(parts, ", ")
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && len(text) >= columns {
		text = text[:max(columns-1, 0)]
	}
	fmt.Fprintf(r.out, "\r%-*s", r.width, text)
	r.width = len(text)
}

// phase runs a phase, or recalls that it has passed.
func (r *run) phase(ctx context.Context, p phase) result {
	if p.root && os.Geteuid() != 0 {
		return result{phase: p.name, state: user}
	}
	if res, ok := r.memory.passed(p.name); ok {
		return res
	}
	r.say("%-10s begins", p.name)
	r.mu.Lock()
	r.begun[p.name] = time.Now()
	r.mu.Unlock()
	res := r.command(ctx, p)
	r.mu.Lock()
	delete(r.begun, p.name)
	r.mu.Unlock()
	if res.state == passed {
		if err := r.memory.keep(res); err != nil {
			r.say("%s: %v", p.name, err)
		}
	}
	return res
}

// waitDelay is how long the output of a phase is read after its process has ended.
const waitDelay = 20 * time.Second

func (r *run) command(ctx context.Context, p phase) result {
	res := result{phase: p.name, state: failed}
	log, err := os.Create(filepath.Join(r.logs, p.name+".log"))
	if err != nil {
		res.failure = []byte(err.Error())
		return res
	}
	defer log.Close()
	out := newReader(log)
	cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(r.root, p.dir), slices.Concat(os.Environ(), []string{"GOFLAGS=" + withoutBinding(os.Getenv("GOFLAGS"))}, p.env)
	cmd.Stdout, cmd.Stderr = out, out
	// An interrupt ends what the phase has started with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = waitDelay
	began := time.Now()
	err = cmd.Run()
	res.took = time.Since(began)
	if cmd.ProcessState != nil {
		res.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	res.counts, res.tests, res.failure = out.close()
	switch {
	case err == nil:
		res.state, res.failure = passed, nil
	case ctx.Err() != nil:
		res.state, res.failure = left, nil
	default:
		res.failure = fmt.Appendf(res.failure, "%s: %v; its whole output is in %s\n", p.name, err, log.Name())
	}
	return res
}

// withoutBinding drops from GOFLAGS the go.mod of a binding to RocksDB that tools/env has chosen for the runner. Phases that
// need one call tools/env themselves, and those of other modules would be built with the dependencies of Fila.
func withoutBinding(flags string) string {
	return strings.TrimSpace(regexp.MustCompile(`'-modfile=[^']*'`).ReplaceAllString(flags, ""))
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// reader takes the output of a phase apart: events of tests, and plain lines of all else.
type reader struct {
	log  io.Writer
	rest []byte // an incomplete line

	mu     sync.Mutex
	counts counts
	tests  []test
	plain  bytes.Buffer             // what is not of a test: compilers, other programs
	output map[string]*bytes.Buffer // of tests and packages that have not ended
	failed bytes.Buffer
}

func newReader(log io.Writer) *reader {
	return &reader{log: log, output: map[string]*bytes.Buffer{}}
}

// plainMax bounds the output of a program that is no test which is repeated when it has failed.
const plainMax = 64 << 10

// Write takes output of the phase.
func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, p...)
	for {
		at := bytes.IndexByte(r.rest, '\n')
		if at < 0 {
			return len(p), nil
		}
		r.line(r.rest[:at+1])
		r.rest = r.rest[at+1:]
	}
}

func (r *reader) line(line []byte) {
	var e event
	if line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Action == "" {
		_, _ = r.log.Write(line) // the verdict does not depend on the log
		r.plain.Write(line)
		if over := r.plain.Len() - plainMax; over > 0 {
			r.plain.Next(over)
		}
		return
	}
	of := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		_, _ = io.WriteString(r.log, e.Output)
		if e.Action == "build-output" {
			r.plain.WriteString(e.Output)
			return
		}
		if r.output[of] == nil {
			r.output[of] = &bytes.Buffer{}
		}
		r.output[of].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Action == "fail" && r.output[of] != nil {
			r.failed.Write(r.output[of].Bytes())
		}
		delete(r.output, of)
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			r.ended(e)
		}
	}
}

// ended counts a test function.
func (r *reader) ended(e event) {
	switch e.Action {
	case "pass":
		r.counts.Passed++
	case "fail":
		r.counts.Failed++
	default:
		r.counts.Skipped++
	}
	r.tests = append(r.tests, test{strings.TrimPrefix(e.Package, module+"/"), e.Test, time.Duration(e.Elapsed * float64(time.Second))})
	slices.SortStableFunc(r.tests, func(a, b test) int { return int(b.took - a.took) })
	r.tests = r.tests[:min(len(r.tests), slowestOf)]
}

// close returns what was read, after the end of the phase.
func (r *reader) close() (c counts, slowest []test, failure []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) > 0 {
		r.line(append(r.rest, '\n'))
	}
	// A process that died takes tests with it which have no result.
	for _, b := range r.output {
		if bytes.Contains(b.Bytes(), []byte("panic:")) || bytes.Contains(b.Bytes(), []byte("DATA RACE")) || bytes.Contains(b.Bytes(), []byte("fatal error:")) {
			r.failed.Write(b.Bytes())
		}
	}
	return r.counts, r.tests, append(r.failed.Bytes(), lastLines(r.plain.Bytes())...)
}

// lastLines returns the output of a program that is repeated: it begins with a whole line.
func lastLines(b []byte) []byte {
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, plainMax+1)
	if len(b) < plainMax || !s.Scan() {
		return b
	}
	return b[min(len(s.Bytes())+1, len(b)):]
}
