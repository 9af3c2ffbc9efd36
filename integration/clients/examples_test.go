package clients_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// example is a published producer and worker.
type example struct {
	name             string
	client           string // whose runtime it requires
	producer, worker []string
	make             [][]string // builds them, in this directory
}

func examples() []example {
	script := func(name, client, interpreter, ending string) example {
		file := func(what string) string { return filepath.Join("..", "..", "examples", name, what+ending) }
		return example{
			name: name, client: client,
			producer: []string{interpreter, file("producer")}, worker: []string{interpreter, file("worker")},
		}
	}
	node := func(library, client string) example {
		// The packages are beside them; here they are the hands' packages.
		file := func(what string) string { return filepath.Join(made("examples-javascript"), what+"-"+library+".js") }
		return example{
			name: "javascript " + library, client: client,
			producer: []string{"node", file("producer")}, worker: []string{"node", file("worker")},
		}
	}
	compiled := func(name, client string, compile func(out, what string) []string) example {
		e := example{name: name, client: client}
		for _, what := range []string{"producer", "worker"} {
			e.make = append(e.make, compile(made("example-"+name+"-"+what), what))
		}
		e.producer, e.worker = []string{made("example-" + name + "-producer")}, []string{made("example-" + name + "-worker")}
		return e
	}
	return []example{
		script("shell", "redis-cli", "bash", ".sh"),
		compiled("c", "hiredis", func(out, what string) []string {
			return []string{"cc", "-Wall", "-Wextra", "-Werror", "-o", out, filepath.Join("..", "..", "examples", "c", what+".c"), "-lhiredis"}
		}),
		compiled("go", "go-redis", func(out, what string) []string {
			return []string{"go", "build", "-o", out, "../../examples/go/" + what}
		}),
		node("ioredis", "ioredis"),
		node("node-redis", "node-redis"),
		script("python", "redis-py", "/usr/bin/python3", ".py"),
		script("ruby", "redis-rb", "ruby", ".rb"),
		script("php", "phpredis", "php", ".php"),
		script("perl", "Redis", "perl", ".pl"),
		script("lua", "redis-lua", "lua5.1", ".lua"),
		script("erlang", "eredis", "escript", ".escript"),
	}
}

// TestExamples starts each worker before its queue exists, has it process its producer's jobs,
// kills the broker meanwhile, and stops the worker twice: during a job and while it waits.
func TestExamples(t *testing.T) {
	copyScripts(t)
	needs := map[string]client{}
	for _, c := range clients() {
		needs[c.name] = c
	}
	slots := make(chan struct{}, atATime)
	var running sync.WaitGroup
	for _, e := range examples() {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(strings.ReplaceAll(e.name, " ", "-"), func(t *testing.T) {
				if !slices.Contains([]string{"shell", "go", "javascript ioredis", "python"}, e.name) {
					testkit.AtLength(t)
				}
				installed(t, needs[e.client])
				for _, command := range e.make {
					run(t, command[0], command[1:]...)
				}
				demonstrate(t, e, kit.Serve(t))
			})
		})
	}
	running.Wait()
}

// copyScripts copies the JavaScript examples to the directory of the packages that they import.
func copyScripts(t *testing.T) {
	t.Helper()
	dir := made("examples-javascript")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "examples", "javascript"))); err != nil {
		t.Fatal(err)
	}
	withPackages(t, dir)
}

// withPackages lets the JavaScript programs in a directory import what the hands do.
func withPackages(t *testing.T, dir string) {
	t.Helper()
	modules, err := filepath.Abs(filepath.Join("javascript", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
}

func demonstrate(t *testing.T, e example, b *harness.Broker) {
	t.Helper()
	admin := kit.Connect(t, b.Addr(), 3)
	r := &trial{T: t, addr: b.Addr(), admin: admin, queue: "example " + e.name}
	worker := r.startWorker(e)
	r.until("it asks for a queue that does not exist yet", func() bool {
		errors, err := admin.InfoMap(t.Context(), "errorstats").Result()
		return err == nil && errors["Errorstats"]["errorstat_NOQUEUE"] != ""
	})
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", r.queue, "MAXATTEMPTS", 5)
	// A failed job is dead only if the reason arrives unchanged.
	kit.Do(t, admin, "FILA.SCRIPT", "LOAD", r.queue, "ON_FAILURE", `function on_failure(msg)
		if msg.error == 'no such user' then return { action = 'dlq' } end
		return { action = 'retry', delay_ms = 3600000 }
	end`)
	// Real time passes: this job takes longer than its lease, which a busy machine extends in time.
	r.produce(e, "say grüße", "sleep 7", "fail no such user", "say done")
	r.until("all jobs are done", func() bool { return r.figure("acked") == 3 && r.figure("leased") == 0 })
	if r.figure("expired") != 0 || r.figure("dead_lettered") != 1 || r.figure("delivered") != 4 {
		t.Errorf("expired %d, dead %d, delivered %d times", r.figure("expired"), r.figure("dead_lettered"), r.figure("delivered"))
	}

	outage(r, b)
	r.until("it waits again", func() bool { return r.waiters() == 1 })
	r.produce(e, "sleep 3", "say later") // long enough to be stopped meanwhile
	r.until("the next job is in hand", func() bool { return r.figure("leased") == 1 })
	worker.stop(t, syscall.SIGTERM)
	if r.figure("acked") != 1 || r.figure("ready") != 1 || r.figure("leased") != 0 {
		t.Errorf("stopped in the middle of a job, it has acked %d, left %d and holds %d", r.figure("acked"), r.figure("ready"), r.figure("leased"))
	}
	said := worker.out.String()

	worker = r.startWorker(e)
	r.until("the other job is done", func() bool { return r.figure("acked") == 2 && r.waiters() == 1 })
	if e.name == "erlang" { // its emulator handles the other signal itself
		worker.stop(t, syscall.SIGTERM)
	} else {
		worker.stop(t, syscall.SIGINT)
	}
	said += worker.out.String()
	if said != "grüße\ndone\nlater\n" {
		t.Errorf("the workers say %q", said)
	}
}

// produce runs the producer, which prints an id per job.
func (r *trial) produce(e example, jobs ...string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), e.producer[0], append(append(e.producer[1:len(e.producer):len(e.producer)], "acme"), jobs...)...)
	cmd.Env = r.environment()
	out, err := cmd.CombinedOutput()
	if ids := strings.Fields(string(out)); err != nil || len(ids) != len(jobs) {
		r.Fatalf("the producer: %v\n%s", err, out)
	}
}

func (r *trial) environment() []string {
	return append(append(os.Environ(), environment(r.T, r.addr, 0)...), "FILA_QUEUE="+r.queue, "FILA_LEASE_MS=6000", "LC_ALL=C.UTF-8")
}

// figure returns a statistic of the queue, or -1 if it is missing.
func (r *trial) figure(name string) int64 {
	v, _ := r.admin.Do(r.Context(), "FILA.QUEUE", "INFO", r.queue).Result()
	fields, _ := v.(map[any]any)
	n, is := fields[name].(int64)
	if !is {
		return -1
	}
	return n
}

func (r *trial) until(what string, is func() bool) {
	r.Helper()
	held := false
	defer func() {
		if !held {
			v, _ := r.admin.Do(r.Context(), "FILA.QUEUE", "INFO", r.queue).Result()
			r.Logf("the queue is %v", v)
		}
	}()
	testkit.Eventually(r.T, what, is)
	held = true
}

// worker is a running worker.
type worker struct {
	cmd      *exec.Cmd
	out, err *bytes.Buffer // to be read after its exit
}

func (r *trial) startWorker(e example) *worker {
	r.Helper()
	w := &worker{cmd: exec.Command(e.worker[0], e.worker[1:]...), out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	w.cmd.Env, w.cmd.Stdout, w.cmd.Stderr = r.environment(), w.out, w.err
	if err := w.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if w.cmd.ProcessState == nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
		if r.Failed() {
			r.Logf("the worker says %q and %q", w.out, w.err)
		}
	})
	return w
}

// stop sends the signal, and fails the test unless the worker exits cleanly.
func (w *worker) stop(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(testkit.Patience(), func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	if err := w.cmd.Wait(); err != nil || strings.Contains(w.err.String(), "LEASELOST") {
		t.Errorf("after %s: %v, %s", s, err, w.err)
	}
}
