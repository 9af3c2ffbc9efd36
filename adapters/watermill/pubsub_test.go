package fila_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"

	fila "github.com/faisca/fila/adapters/watermill"
)

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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), bin, "--server.listen_addr", addr, "--storage.path", t.TempDir())
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 10 * time.Second, PoolSize: 100})
	t.Cleanup(func() { _ = client.Close() })
	for end := time.Now().Add(20 * time.Second); client.Ping(context.Background()).Err() != nil; time.Sleep(20 * time.Millisecond) {
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
	tests.TestPubSub(t, tests.Features{ConsumerGroups: true, GuaranteedOrder: true, Persistent: true}, pubSub, group)
}
