package dashboard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// broker is a running broker with its admin listener.
type broker struct {
	*harness.Broker

	t    *testing.T
	url  string // of the dashboard
	conn *client.Conn
}

// start starts a broker with its store in memory. login is the user and password of the test's own
// connection, where there are users.
func start(t *testing.T, login [2]string, args ...string) *broker {
	t.Helper()
	b := launch(t, append([]string{"--storage.engine", "memory"}, args...)...)
	b.serves(login)
	return b
}

// launch starts the process of a broker, which ends with the test.
func launch(t *testing.T, args ...string) *broker {
	t.Helper()
	addr := kit.Reserve(t)
	b := kit.Prepare(t, append([]string{"--admin.listen_addr", addr, "--admin.figures_ms", "500", "--log.level", "warn"}, args...)...)
	if err := b.Start(); err != nil { // with users, what tells whether it is ready needs a login
		t.Fatal(err)
	}
	return &broker{Broker: b, t: t, url: "http://" + addr + "/"}
}

// serves waits until the broker serves, and opens the connection of the test.
func (b *broker) serves(login [2]string) {
	b.t.Helper()
	testkit.Eventually(b.t, "the broker is ready", func() bool {
		r, err := http.Get(b.url + "readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		word, _ := io.ReadAll(r.Body)
		return strings.TrimSpace(string(word)) == "running"
	})
	b.conn = b.dial(login[0], login[1])
}

// dial opens a connection of a user.
func (b *broker) dial(user, password string) *client.Conn {
	b.t.Helper()
	c, err := client.Dial(b.t.Context(), b.Addr(), client.Options{User: user, Password: password, ReplyBytesMax: 64 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// do runs a command that must not be refused.
func (b *broker) do(words ...string) any {
	b.t.Helper()
	reply, err := b.conn.Do(b.t.Context(), words...)
	if err != nil {
		b.t.Fatalf("%q: %v", words, err)
	}
	return reply
}

// enqueue enqueues n messages with the same options.
func (b *broker) enqueue(n int, queue, payload string, options ...string) {
	b.t.Helper()
	for n > 0 {
		batch := make([][]string, min(n, 500))
		for i := range batch {
			batch[i] = append([]string{"FILA.ENQUEUE", queue, payload}, options...)
		}
		replies, err := b.conn.Pipeline(b.t.Context(), batch...)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range replies {
			if refusal, refused := r.(client.RefusalError); refused {
				b.t.Fatal(refusal)
			}
		}
		n -= len(batch)
	}
}

// die makes n messages of a queue dead, with an error each.
func (b *broker) die(n int, queue string, text func(i int) string, options ...string) {
	b.t.Helper()
	for i := range n {
		b.enqueue(1, queue, `{"order": `+string(rune('0'+i%10))+`, "amount": 99}`, options...)
		leased, _ := b.do("FILA.LEASE", queue).([]any)
		if len(leased) != 1 {
			b.t.Fatalf("leased %v", leased)
		}
		message, _ := leased[0].([]any)
		b.do("FILA.NACK", queue, client.Text(message[0]), "DEAD", "ERROR", text(i))
	}
}

// work leases and acks messages of queues with a pause between them, until the test ends.
func (b *broker) work(user, password string, every time.Duration, queues ...string) {
	b.t.Helper()
	c := b.dial(user, password)
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			lease := append([]string{"FILA.MLEASE", itoa(len(queues))}, queues...)
			reply, err := c.Do(ctx, append(lease, "BLOCK", "500", "CONSUMER", "worker-1")...)
			if err != nil && !errors.As(err, new(client.RefusalError)) {
				return
			}
			messages, _ := reply.([]any)
			for _, m := range messages {
				fields, _ := m.([]any)
				select {
				case <-time.After(every):
				case <-ctx.Done():
					return
				}
				_, _ = c.Do(ctx, "FILA.ACK", client.Text(fields[8]), client.Text(fields[0]))
			}
		}
	}()
	b.t.Cleanup(func() {
		cancel()
		<-ended
	})
}
