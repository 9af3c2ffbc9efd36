package fila_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	fila "github.com/faisca/fila/adapters/go"
)

// TestMain starts the broker that the tests share, or is a worker in a process of its own.
func TestMain(m *testing.M) {
	logging.Disable() // brokers are killed here
	if queue := os.Getenv("WORKER_OF"); queue != "" {
		os.Exit(program(queue))
	}
	os.Exit(withBroker(m))
}

func withBroker(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fila-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		b := &broker{dir: dir, storage: "memory"} // it is not restarted
		if err = b.start(); err == nil {
			defer b.kill()
			err = os.Setenv("BROKER_ADDR", b.addr)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// visibility is that of workers whose leases are extended, after 1.5 seconds: a process may be stopped for three.
const visibility = 4500 * time.Millisecond

// program is a worker until SIGTERM. A message has a list: how long each attempt takes, such as "1h 0s". An attempt that is not
// in it ends at SIGUSR2.
func program(queue string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { fmt.Println("ending") })
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGUSR2)
	client := redis.NewClient(options(os.Getenv("BROKER_ADDR")))
	defer client.Close()
	w := &fila.Worker{Queue: &fila.Queue{Client: client, Name: queue}, Visibility: visibility, Handler: func(_ context.Context, job *fila.Job) ([]byte, error) {
		fmt.Println("begun", job.Attempt)
		if times := strings.Fields(string(job.Payload)); job.Attempt <= int64(len(times)) {
			d, err := time.ParseDuration(times[job.Attempt-1])
			if err != nil {
				return nil, err
			}
			<-time.After(d)
		} else {
			<-end
		}
		fmt.Println("done")
		return []byte("slept"), nil
	}}
	if os.Getenv("WORKER_BATCH") != "" {
		handler := w.Handler
		w.Handler = nil
		w.BatchHandler = func(ctx context.Context, jobs []*fila.Job) error {
			if err := jobs[0].Ack([]byte("first")); err != nil {
				return err
			}
			fmt.Println("begun", len(jobs))
			_, err := handler(ctx, jobs[0])
			return err
		}
	}
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ended")
	return 0
}

func options(addr string) *redis.Options {
	return &redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: patience()}
}

// broker is a process of the broker that TEST_BROKER names.
type broker struct {
	dir, addr string
	storage   string // rocksdb, unless it is set
	cmd       *exec.Cmd
}

// start starts the broker, again at the same address.
func (b *broker) start() error {
	bin := os.Getenv("TEST_BROKER")
	if bin == "" {
		bin = "../../bin/fila"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if _, err := os.Stat(bin); err != nil {
		return fmt.Errorf("%w: build the broker with `make build`, or name one in TEST_BROKER", err)
	}
	if b.addr == "" {
		if b.addr, err = reserve(); err != nil {
			return err
		}
	}
	b.cmd = exec.CommandContext(context.Background(), bin, "--server.listen_addr", b.addr, "--storage.path", b.dir, "--storage.engine", cmp.Or(b.storage, "rocksdb"), "--admin.listen_addr", "", "--log.level", "error")
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		return err
	}
	client := redis.NewClient(options(b.addr))
	defer client.Close()
	for end := time.Now().Add(patience()); client.Ping(context.Background()).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.kill()
			return fmt.Errorf("the broker does not answer at %s", b.addr)
		}
	}
	return nil
}

func (b *broker) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// connected returns a client of the broker that the tests share.
func connected(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(options(os.Getenv("BROKER_ADDR")))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// patience is how long a test waits for something: two minutes, times TEST_PATIENCE.
func patience() time.Duration {
	factor, err := strconv.ParseFloat(cmp.Or(os.Getenv("TEST_PATIENCE"), "1"), 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(factor * float64(2*time.Minute))
}

// reserve returns an address for a server. The system gives its port to no other process until this one ends:
// a socket that never listens is bound to it, and servers may bind it beside that, as they set SO_REUSEADDR.
func reserve() (addr string, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return "", err
	}
	return fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port), nil
}

// atLength skips a test in a short run, which has one that is handled and one that fails.
func atLength(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("at length")
	}
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience()); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience(), what)
		}
	}
}

// extended waits until all leases of a queue, of which there are some, have been extended once more.
func extended(t *testing.T, client *redis.Client, queue string) {
	t.Helper()
	before := leases(t, client, queue)
	if len(before) == 0 {
		t.Fatalf("nothing is leased from %s", queue)
	}
	until(t, "the leases are extended", func() bool {
		now := leases(t, client, queue)
		for id, end := range before {
			if now[id] <= end {
				return false
			}
		}
		return true
	})
}

// leases returns when the leases of the messages of a queue that are leased end, by their ids.
func leases(t *testing.T, client *redis.Client, queue string) map[string]int64 {
	t.Helper()
	reply, err := client.Do(t.Context(), "FILA.BROWSE", queue, "STATUS", "leased").Slice()
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int64{}
	for _, m := range reply[1].([]any) {
		fields := m.(map[any]any)
		ends[fields["id"].(string)] = fields["lease_until"].(int64)
	}
	return ends
}

// info returns a field of FILA.QUEUE INFO; 0 if there is no such queue.
func info(t *testing.T, client *redis.Client, queue, field string) int64 {
	t.Helper()
	reply, err := client.Do(t.Context(), "FILA.QUEUE", "INFO", queue).Result()
	if err != nil {
		return 0
	}
	fields, ok := reply.(map[any]any)
	if !ok {
		t.Fatalf("FILA.QUEUE INFO has replied %v", reply)
	}
	n, ok := fields[field].(int64)
	if !ok {
		t.Fatalf("%s is %v", field, fields[field])
	}
	return n
}
