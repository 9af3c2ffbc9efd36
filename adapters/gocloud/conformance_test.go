package filapubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"
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
func broker(t *testing.T) (client *redis.Client, addr string) {
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
	addr, err = reserve()
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
	client = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: patience()})
	t.Cleanup(func() { _ = client.Close() })
	for end := time.Now().Add(patience()); client.Ping(context.Background()).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the broker does not answer")
		}
	}
	return client, addr
}

// harness makes topics that are queues or, with fanOut, topics with queues that are bound to them.
type harness struct {
	client *redis.Client
	fanOut bool
	made   *atomic.Int64
}

func (h *harness) name(test string) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(test, "/", "-"), h.made.Add(1))
}

func (h *harness) create(ctx context.Context, queue string) error {
	return h.client.Do(ctx, "FILA.QUEUE", "CREATE", queue, "BACKOFF", 0, "MAXATTEMPTS", 0).Err()
}

func (h *harness) CreateTopic(ctx context.Context, test string) (driver.Topic, func(), error) {
	name := h.name(test)
	if !h.fanOut {
		if err := h.create(ctx, name); err != nil {
			return nil, nil, err
		}
	}
	return newTopic(h.client, name, &TopicOptions{FanOut: h.fanOut}), func() {}, nil
}

func (h *harness) MakeNonexistentTopic(context.Context) (driver.Topic, error) {
	return newTopic(h.client, "nobody", &TopicOptions{FanOut: h.fanOut}), nil
}

func (h *harness) CreateSubscription(ctx context.Context, dt driver.Topic, test string) (driver.Subscription, func(), error) {
	t, ok := dt.(*topic)
	if !ok {
		return nil, nil, errors.New("a topic of another driver")
	}
	queue := t.name
	if h.fanOut {
		queue = h.name(test)
		if err := h.create(ctx, queue); err != nil {
			return nil, nil, err
		}
		if err := h.client.Do(ctx, "FILA.TOPIC", "BIND", t.name, queue).Err(); err != nil {
			return nil, nil, err
		}
	}
	return newSubscription(h.client, queue, nil), func() {}, nil
}

func (h *harness) MakeNonexistentSubscription(context.Context) (driver.Subscription, func(), error) {
	return newSubscription(h.client, "nobody", nil), func() {}, nil
}

func (h *harness) Close()                              {}
func (h *harness) MaxBatchSizes() (int, int)           { return 0, 0 }
func (h *harness) SupportsMultipleSubscriptions() bool { return h.fanOut }

// types checks the types of As.
type types struct{}

func (types) Name() string { return "types of Fila" }

func (types) TopicCheck(t *pubsub.Topic) error {
	var c redis.UniversalClient
	if !t.As(&c) || c == nil {
		return errors.New("the client of a topic is not known")
	}
	return nil
}

func (types) SubscriptionCheck(s *pubsub.Subscription) error {
	var c redis.UniversalClient
	if !s.As(&c) || c == nil {
		return errors.New("the client of a subscription is not known")
	}
	return nil
}

func (types) TopicErrorCheck(t *pubsub.Topic, err error) error {
	var e redis.Error
	if t.ErrorAs(err, &e) != !errors.Is(err, errNoQueue) {
		return fmt.Errorf("the reply of the broker is not known: %w", err)
	}
	return nil
}

func (types) SubscriptionErrorCheck(s *pubsub.Subscription, err error) error {
	var e redis.Error
	if !s.ErrorAs(err, &e) {
		return fmt.Errorf("the reply of the broker is not known: %w", err)
	}
	return nil
}

func (types) MessageCheck(m *pubsub.Message) error {
	var d *Delivery
	if !m.As(&d) || d.Key != "acme" || d.Attempt != 1 || d.Receipt == "" || time.Since(d.EnqueuedAt) > time.Minute {
		return fmt.Errorf("delivery %+v", d)
	}
	return nil
}

func (types) BeforeSend(as func(any) bool) error {
	var o *Options
	if !as(&o) {
		return errors.New("the options of a message cannot be set")
	}
	*o = Options{"KEY", "acme"}
	return nil
}

func (types) AfterSend(func(any) bool) error { return nil }

// Go CDK's own tests of a driver, for queues and for topics with several subscriptions.
func TestConformance(t *testing.T) {
	client, _ := broker(t)
	for name, fanOut := range map[string]bool{"queue": false, "topic": true} {
		t.Run(name, func(t *testing.T) {
			var made atomic.Int64
			drivertest.RunConformanceTests(t, func(context.Context, *testing.T) (drivertest.Harness, error) {
				return &harness{client: client, fanOut: fanOut, made: &made}, nil
			}, []drivertest.AsTest{types{}})
		})
	}
}

// A program that knows a URL only.
func TestURLs(t *testing.T) {
	client, addr := broker(t)
	t.Setenv(serverVariable, fmt.Sprintf("fila://%s?read_timeout=%s", addr, patience()))
	ctx := t.Context()
	if err := client.Do(ctx, "FILA.QUEUE", "CREATE", "orders").Err(); err != nil {
		t.Fatal(err)
	}
	topic, err := pubsub.OpenTopic(ctx, "fila://orders?keyfrom=tenant")
	if err != nil {
		t.Fatal(err)
	}
	if err := topic.Send(ctx, &pubsub.Message{Body: []byte("hello"), Metadata: map[string]string{"tenant": "acme"}}); err != nil {
		t.Fatal(err)
	}
	sub, err := pubsub.OpenSubscription(ctx, "fila://orders?visibility=30s&consumer=me")
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var d *Delivery
	if m.Ack(); string(m.Body) != "hello" || !m.As(&d) || d.Key != "acme" || time.Until(d.LeaseUntil) > 30*time.Second {
		t.Errorf("%q, %+v", m.Body, d)
	}
	if err := errors.Join(sub.Shutdown(ctx), topic.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"fila://orders?visibility=soon", "fila://orders?colour=red"} {
		if _, err := pubsub.OpenSubscription(ctx, wrong); err == nil {
			t.Errorf("%s was opened", wrong)
		}
	}
	if _, err := pubsub.OpenTopic(ctx, "fila://orders?visibility=30s"); err == nil {
		t.Error("a topic with a visibility timeout was opened")
	}
}
