package fila_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"

	fila "github.com/faisca/fila/adapters/watermill"
)

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

// broker starts a broker and returns a client of it.
func broker(t *testing.T) *redis.Client {
	t.Helper()
	bin := os.Getenv("TEST_BROKER")
	if bin == "" {
		bin = "../../bin/fila"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: build the broker with `make build`, or name one in TEST_BROKER", err)
	}
	addr, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), bin, "--server.listen_addr", addr, "--storage.path", t.TempDir())
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: patience(), PoolSize: 100})
	t.Cleanup(func() { _ = client.Close() })
	for end := time.Now().Add(patience()); client.Ping(context.Background()).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the broker does not answer")
		}
	}
	return client
}

// Watermill's own tests of a Pub/Sub, with and without consumer groups.
func TestPubSub(t *testing.T) {
	client := broker(t)
	retryAtOnce := []any{"BACKOFF", 0, "MAXATTEMPTS", 0, "ORDERED", "ON"}
	pubSub := func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return fila.NewPublisher(fila.PublisherConfig{Client: client, QueueOptions: retryAtOnce}),
			fila.NewSubscriber(fila.SubscriberConfig{Client: client, QueueOptions: retryAtOnce, Logger: watermill.NewStdLogger(false, false)})
	}
	group := func(t *testing.T, name string) (message.Publisher, message.Subscriber) {
		t.Helper()
		return fila.NewPublisher(fila.PublisherConfig{Client: client, FanOut: true}),
			fila.NewSubscriber(fila.SubscriberConfig{Client: client, QueueOptions: retryAtOnce, ConsumerGroup: name})
	}
	if testing.Short() { // work that is done, and a failure
		features := tests.TestContext{TestID: tests.NewTestID(), Features: tests.Features{GuaranteedOrder: true, Persistent: true}}
		tests.TestPublishSubscribe(t, features, pubSub)
		features.TestID = tests.NewTestID()
		tests.TestResendOnError(t, features, pubSub)
		return
	}
	tests.TestPubSub(t, tests.Features{ConsumerGroups: true, GuaranteedOrder: true, Persistent: true}, pubSub, group)
}
