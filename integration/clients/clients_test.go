package clients_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// atATime is the number of clients tested concurrently. It exceeds the number of processors, since
// clients mostly wait.
const atATime = 8

// TestMain makes the directory of build artefacts.
func TestMain(m *testing.M) {
	if err := os.MkdirAll(made(""), 0o755); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestClients tests Fila with each client.
func TestClients(t *testing.T) {
	all := clients()
	for _, c := range all {
		if c.make != nil && missing(t, c) == nil {
			run(t, c.make[0], c.make[1:]...)
		}
	}
	seen := make([]*result, len(all))
	slots := make(chan struct{}, atATime)
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
				installed(t, c)
				seen[i] = try(t, c)
			})
		})
	}
	running.Wait()
	document(t, all, seen)
}

// missing returns why a client cannot run here, or nil.
func missing(t *testing.T, c client) error {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), c.has[0], c.has[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot be tried; make setup-tests installs it, or says why it is left out (%s): %w\n%s", c.name, c.install, err, out)
	}
	return nil
}

// installed fails in CI, and skips elsewhere, if a client cannot run.
func installed(t *testing.T, c client) {
	t.Helper()
	if err := missing(t, c); err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
}

// result is the result of a client's rows.
type result struct {
	version string
	cells   map[string]string // by column
}

// try runs all rows with a client.
func try(t *testing.T, c client) *result {
	t.Helper()
	open := c.open
	if open == nil {
		open = func(t *testing.T, addr string, protocol int) (hand, string) {
			t.Helper()
			p := startProgram(t, c.command, addr, protocol)
			return p, p.version
		}
	}
	b := kit.Serve(t)
	admin := redis.NewClient(&redis.Options{
		Addr: b.Addr(), ClientName: adminName, MaxRetries: -1,
		DialTimeout: testkit.Patience(), ReadTimeout: testkit.Patience(), WriteTimeout: testkit.Patience(), PoolTimeout: testkit.Patience(),
	})
	t.Cleanup(func() { _ = admin.Close() })

	if c.benchmark {
		return tryBenchmark(t, b.Addr(), admin)
	}
	done := &result{cells: map[string]string{}}
	begin := func(t *testing.T, protocol int) *trial {
		t.Helper()
		r := &trial{T: t, client: c, addr: b.Addr(), admin: admin}
		r.hand, done.version = open(t, b.Addr(), protocol)
		r.want("here", "ECHO", "here")
		return r
	}
	cell := func(t *testing.T, name string, run func(*testing.T)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			done.cells[name] = works // otherwise the test has failed
			run(t)
		})
	}
	byDefault := func(t *testing.T, begin func(*testing.T) *trial) {
		t.Helper()
		cell(t, "connect", func(t *testing.T) { //nolint:thelper // the test itself
			begin(t).wantProtocol(c.protocol)
		})
		for _, each := range rows() {
			cell(t, each.name, func(t *testing.T) { //nolint:thelper // the test itself
				r := begin(t)
				r.queue = "by default: " + each.name
				each.run(r)
			})
		}
	}
	if testing.Short() { // one hand for all rows: most of the processor time is that of their starts
		t.Run("by default", func(t *testing.T) {
			one := *begin(t, 0)
			byDefault(t, func(t *testing.T) *trial { //nolint:thelper // the test itself
				r := one
				r.T = t
				return &r
			})
		})
	} else {
		byDefault(t, func(t *testing.T) *trial { return begin(t, 0) }) //nolint:thelper // the test itself
	}
	done.cells["connect"] = "RESP" + strconv.Itoa(c.protocol)
	done.cells["RESP2"], done.cells["RESP3"] = none, none
	done.cells["RESP"+strconv.Itoa(c.protocol)] = works // the default protocol is tested above
	if c.other != 0 {
		name := "RESP" + strconv.Itoa(c.other)
		cell(t, name, func(t *testing.T) { //nolint:thelper // the test itself
			r := begin(t, c.other)
			r.wantProtocol(c.other)
			for _, each := range rows() {
				if each.name == "blocking" {
					continue // slow, and covered by the other rows
				}
				r.queue = name + ": " + each.name
				each.run(r)
			}
		})
	}
	cell(t, "reconnect", func(t *testing.T) { //nolint:thelper // the test itself
		r := begin(t, 0)
		r.queue = "reconnect"
		reconnect(r, b)
	})
	return done
}

// adminName is the client name of the connections that inspect the broker.
const adminName = "looks-from-beside"

// wantProtocol verifies the protocol of the hand's connections as the broker reports it.
func (r *trial) wantProtocol(protocol int) {
	r.Helper()
	// With one process per command no connection can be observed.
	if _, short := r.hand.(*redisCLI); short {
		return
	}
	text, err := r.admin.ClientList(r.Context()).Result()
	if err != nil {
		r.Fatal(err)
	}
	found := false
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "name="+adminName) {
			found = true
			if !strings.Contains(line, " resp="+strconv.Itoa(protocol)+" ") {
				r.Fatalf("a connection does not speak RESP%d: %s", protocol, line)
			}
		}
	}
	if !found {
		r.Fatalf("no connection of the hand's:\n%s", text)
	}
}

// reconnect kills the broker, first while the hand is idle and then while it waits, and lets the
// hand continue after the restart.
func reconnect(r *trial, b *harness.Broker) {
	r.want("OK", "FILA.QUEUE", "CREATE", r.queue)
	r.do("FILA.ENQUEUE", r.queue, "before")
	outage(r, b)
	r.back()
	r.do("FILA.ENQUEUE", r.queue, "after")
	var all []message
	for range 2 { // what was there before the kill may be in memory earlier than the rest
		if len(all) < 2 {
			all = append(all, messages(r, r.do("FILA.LEASE", r.queue, "COUNT", "10", "BLOCK", "5000"))...)
		}
	}
	if len(all) != 2 || all[0].payload != "before" || all[1].payload != "after" {
		r.Fatalf("leased %v of what was enqueued before and after", all)
	}
	r.want("2", "FILA.ACK", r.queue, all[0].receipt, all[1].receipt)

	served := r.waiting(r.hand, "20000")
	outage(r, b)
	if err := r.admin.Do(r.Context(), "FILA.ENQUEUE", r.queue, "later").Err(); err != nil {
		r.Fatal(err)
	}
	got := <-served // a connection error, or the reply to a repeated request
	lost := got.err != nil || got.v == nil && r.client.losesErrors
	if _, refused := errors.AsType[replyError](got.err); refused || !lost && len(list(got.v)) != 1 {
		r.Fatalf("killed while it waits, the lease answers %v, %v", got.v, got.err)
	}
	r.back()
	if all = messages(r, got.v); lost {
		all = []message{r.lease(r.queue)}
	}
	r.want("1", "FILA.ACK", r.queue, all[0].receipt)
	r.wantLeft(0)
}

// outage kills the broker and restarts it after a while.
func outage(r *trial, b *harness.Broker) {
	r.Helper()
	kit.Kill(r.T, b)
	// Real time passes: immediate retries of clients are meant to fail.
	for back := time.Now().Add(200 * time.Millisecond); time.Now().Before(back); {
		time.Sleep(10 * time.Millisecond)
	}
	kit.Start(r.T, b)
}

// back waits until the hand's commands are answered again. A pool may hold several broken
// connections: each costs a command.
func (r *trial) back() {
	r.Helper()
	const enough = 20
	good := 0
	var last error
	defer func() {
		if good < enough {
			r.Logf("the last error was %v; the broker's clients are:\n%s", last, r.admin.ClientList(r.Context()).Val())
		}
	}()
	testkit.Eventually(r.T, "it comes back", func() bool {
		for good < enough {
			if _, err := r.hand.do(atOnce, "PING"); err != nil {
				good, last = 0, err
				return false
			}
			good++
		}
		return true
	})
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
