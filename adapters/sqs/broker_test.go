package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// TestMain starts the broker that most tests share.
func TestMain(m *testing.M) {
	logging.Disable() // brokers are killed here
	os.Exit(func() int {
		b := &broker{storage: "memory"} // it is not restarted
		if err := b.start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer b.kill()
		shared.Store(b)
		var err error
		if built, err = os.MkdirTemp("", "fila-sqs"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built)
		return m.Run()
	}())
}

//nolint:gochecknoglobals // set before the tests run
var (
	shared atomic.Pointer[broker]
	built  string // the folder of what tests build
)

// patience is how long a test waits for something: two minutes, times TEST_PATIENCE.
func patience() time.Duration {
	factor, err := strconv.ParseFloat(cmp.Or(os.Getenv("TEST_PATIENCE"), "1"), 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(factor * float64(2*time.Minute))
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

// broker is a process of the broker that TEST_BROKER names.
type broker struct {
	addr, dir string
	storage   string // rocksdb, unless it is set
	args      []string
	cmd       *exec.Cmd
}

// start starts the broker, again at the same address.
func (b *broker) start() (err error) {
	bin := cmp.Or(os.Getenv("TEST_BROKER"), "../../bin/fila")
	if bin, err = filepath.Abs(bin); err != nil {
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
	args := []string{"--server.listen_addr", b.addr, "--storage.path", cmp.Or(b.dir, os.TempDir()), "--storage.engine", cmp.Or(b.storage, "rocksdb"), "--admin.listen_addr", "", "--log.level", "error"}
	b.cmd = exec.CommandContext(context.Background(), bin, append(args, b.args...)...)
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: b.addr, MaxRetries: -1})
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

// options are how a gateway reaches a broker.
func options(addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{addr}, MaxRetries: -1, ReadTimeout: patience(), PoolSize: 100}
}

// serve starts a gateway and returns its URL.
func serve(t *testing.T, cfg Config) string {
	t.Helper()
	if cfg.Broker == nil {
		cfg.Broker = options(shared.Load().addr)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return serveGateway(t, g)
}

// serveGateway starts a server of a gateway and returns its URL.
func serveGateway(t *testing.T, g *Gateway) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, ended := g.Server(), make(chan error)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
		_ = g.Close()
	})
	return "http://" + l.Addr().String()
}

// connected returns a client of the shared broker.
func connected(t *testing.T) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(options(shared.Load().addr))
	t.Cleanup(func() { _ = client.Close() })
	return client
}
