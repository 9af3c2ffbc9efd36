package clients_test

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/internal/testkit"
)

// trial is a client under test with its own broker.
type trial struct {
	*testing.T
	client client
	addr   string
	hand   hand
	admin  *redis.Client // inspects the broker
	queue  string        // of the row
}

// row is a test of every client: a column of the matrix, explained in docs/reference/clients.md.
type row struct {
	name string
	run  func(*trial)
}

func rows() []row {
	return []row{{"life cycle", lifeCycle}, {"batches", batches}, {"blocking", blocking}, {"errors", refusals}, {"binary", binaries}}
}

// do sends a command that must succeed.
func (r *trial) do(args ...string) reply {
	r.Helper()
	v, err := r.hand.do(atOnce, args...)
	if err != nil {
		r.Fatalf("%.100q: %v", args, err)
	}
	return v
}

// want sends a command and compares the reply.
func (r *trial) want(answer string, args ...string) {
	r.Helper()
	if v := r.do(args...); text(v) != answer {
		r.Fatalf("%.100q answers %v, want %s", args, v, answer)
	}
}

// message is a leased message, with the fields that the rows check.
type message struct {
	receipt, payload string
	headers          []reply
	key              string
	attempt, until   int64
}

func messages(r *trial, v reply) []message {
	r.Helper()
	var all []message
	for _, each := range list(v) {
		m := list(each)
		if len(m) < 9 {
			r.Fatalf("a message is %v", each)
		}
		all = append(all, message{text(m[0]), text(m[1]), list(m[2]), text(m[3]), number(m[4]), number(m[7])})
	}
	return all
}

// lease leases the one message that must be ready.
func (r *trial) lease(queue string, options ...string) message {
	r.Helper()
	all := messages(r, r.do(append([]string{"FILA.LEASE", queue}, options...)...))
	if len(all) != 1 {
		r.Fatalf("leased %d messages of %s, want one", len(all), queue)
	}
	return all[0]
}

func lifeCycle(r *trial) {
	q := r.queue
	r.want("OK", "FILA.QUEUE", "CREATE", q, "MAXATTEMPTS", "2", "BACKOFF", "0", "VISIBILITY", "60000")
	id := text(r.do("FILA.ENQUEUE", q, "resize 17.png", "KEY", "acme", "HEADER", "trace", "7f3a", "HEADER", "lang", "en", "PRIORITY", "7"))

	m := r.lease(q, "VISIBILITY", "30000", "CONSUMER", "one")
	if !strings.HasPrefix(m.receipt, id+":") || m.payload != "resize 17.png" || m.key != "acme" || m.attempt != 1 ||
		fmt.Sprint(m.headers) != "[trace 7f3a lang en]" {
		r.Fatalf("enqueued %s, leased %+v", id, m)
	}
	if until := number(r.do("FILA.EXTEND", q, m.receipt, "90000")); until <= m.until {
		r.Fatalf("extended until %d, was %d", until, m.until)
	}
	v := r.do("FILA.NACK", q, m.receipt, "ERROR", "it broke")
	if text(field(v, "action")) != "retry" || number(field(v, "attempt")) != 2 {
		r.Fatalf("the first nack answers %v", v)
	}
	m = r.lease(q)
	if m.attempt != 2 {
		r.Fatalf("after a nack it is attempt %d", m.attempt)
	}
	v = r.do("FILA.NACK", q, m.receipt, "ERROR", "again")
	if text(field(v, "action")) != "dlq" || text(field(v, "dlq")) != q+".dlq" {
		r.Fatalf("the last nack answers %v", v)
	}
	if v := r.do("FILA.LEASE", q); len(list(v)) != 0 || list(v) == nil {
		r.Fatalf("an empty queue answers %v, want an empty array", v)
	}
	m = r.lease(q + ".dlq")
	r.want("1", "FILA.RELEASE", q+".dlq", m.receipt)
	r.want("1", "FILA.REDRIVE", q+".dlq")
	m = r.lease(q)
	if m.attempt != 1 {
		r.Fatalf("a redriven message is at attempt %d", m.attempt)
	}
	r.want("1", "FILA.RELEASE", q, m.receipt)
	m = r.lease(q)
	if m.attempt != 1 {
		r.Fatalf("a released message is at attempt %d", m.attempt)
	}
	r.want("1", "FILA.ACK", q, m.receipt)
	r.want("0", "FILA.ACK", q, m.receipt)
	r.wantLeft(0)
}

// wantLeft checks the number of messages in the row's queue.
func (r *trial) wantLeft(n int64) {
	r.Helper()
	info := r.do("FILA.QUEUE", "INFO", r.queue)
	if left := number(field(info, "ready")) + number(field(info, "leased")) + number(field(info, "delayed")); left != n {
		r.Fatalf("%d messages are left, want %d: %v", left, n, info)
	}
}

func batches(r *trial) {
	const n = 100
	r.want("OK", "FILA.QUEUE", "CREATE", r.queue)
	for i := range n {
		r.do("FILA.ENQUEUE", r.queue, strconv.Itoa(i))
	}
	all := messages(r, r.do("FILA.LEASE", r.queue, "COUNT", strconv.Itoa(n)))
	if len(all) != n {
		r.Fatalf("leased %d messages of %d", len(all), n)
	}
	ack := []string{"FILA.ACK", r.queue}
	for i, m := range all {
		if m.payload != strconv.Itoa(i) {
			r.Fatalf("message %d is %q", i, m.payload)
		}
		ack = append(ack, m.receipt)
	}
	r.want(strconv.Itoa(n), ack...)
	r.wantLeft(0)
}

// long is a wait that exceeds the read timeout of most libraries with one.
const long = 5500 * time.Millisecond

func blocking(r *trial) {
	r.want("OK", "FILA.QUEUE", "CREATE", r.queue)
	for _, wait := range []time.Duration{300 * time.Millisecond, long} {
		ms := strconv.FormatInt(wait.Milliseconds(), 10)
		start := time.Now()
		v, err := r.hand.do(ms, "FILA.LEASE", r.queue, "BLOCK", ms)
		if took := time.Since(start); err != nil || len(list(v)) != 0 || list(v) == nil || took < wait-10*time.Millisecond {
			r.Fatalf("a wait of %s in vain took %s and answers %v, %v", wait, took, v, err)
		}
	}
	for _, wait := range []string{"20000", forever} {
		served := r.waiting(r.hand, wait)
		if err := r.admin.Do(r.Context(), "FILA.ENQUEUE", r.queue, "late").Err(); err != nil {
			r.Fatal(err)
		}
		got := <-served
		all := messages(r, got.v)
		if got.err != nil || len(all) != 1 || all[0].payload != "late" {
			r.Fatalf("BLOCK %s answers %v, %v", wait, got.v, got.err)
		}
		r.want("1", "FILA.ACK", r.queue, all[0].receipt)
	}
}

// answer is the result of a hand's call.
type answer struct {
	v   reply
	err error
}

// waiting makes a hand wait for a message, and returns once the broker reports the wait.
func (r *trial) waiting(h hand, wait string) <-chan answer {
	r.Helper()
	done := make(chan answer, 1)
	go func() {
		v, err := h.do(wait, "FILA.LEASE", r.queue, "BLOCK", wait)
		done <- answer{v, err}
	}()
	testkit.Eventually(r.T, "the hand waits for a message", func() bool { return r.waiters() == 1 })
	return done
}

// waiters returns the number of clients waiting on the row's queue, or -1 if the broker does not
// report it.
func (r *trial) waiters() int64 {
	v, _ := r.admin.Do(r.Context(), "FILA.STATS", r.queue).Result()
	fields, _ := v.(map[any]any)
	n, is := fields["waiters"].(int64)
	if !is {
		return -1
	}
	return n
}

func refusals(r *trial) {
	r.want("OK", "FILA.QUEUE", "CREATE", r.queue)
	id := text(r.do("FILA.ENQUEUE", r.queue, "x"))
	m := r.lease(r.queue)
	r.want("1", "FILA.ACK", r.queue, m.receipt)
	for _, c := range []struct {
		code string
		args []string
	}{
		{"NOQUEUE", []string{"FILA.LEASE", r.queue + ".nosuch"}},
		{"LEASELOST", []string{"FILA.EXTEND", r.queue, m.receipt, "1000"}},
		{"BADRECEIPT", []string{"FILA.ACK", r.queue, "junk"}},
		{"ERR", []string{"FILA.NOSUCH", r.queue, id}},
		{"ERR", []string{"FILA.ENQUEUE", r.queue}},
	} {
		_, err := r.hand.do(atOnce, c.args...)
		if _, refused := errors.AsType[replyError](err); !refused {
			r.Fatalf("%q: got %v, want the broker's error", c.args, err)
		}
		said := strings.TrimPrefix(err.Error(), strings.ReplaceAll(r.client.errorPrefix, "COMMAND", c.args[0]))
		if !strings.HasPrefix(said, c.code+cmp.Or(r.client.errorMark, " ")) && (c.code != "ERR" || !r.client.dropsERR) {
			r.Fatalf("%q: the error is %q, want the code %s", c.args, err, c.code)
		}
		if c.args[0] == "FILA.NOSUCH" && !strings.Contains(said, "unknown command 'FILA.NOSUCH'") {
			r.Fatalf("%q: the error is %q", c.args, err)
		}
		r.do("PING")
	}
}

func binaries(r *trial) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	r.want("OK", "FILA.QUEUE", "CREATE", r.queue)
	for _, c := range []struct{ payload, key, header string }{
		{string(all), "key", "value"},
		{"\x00\r\n\x00*1\r\n$4\r\nPING\r\n", "\r\n\x00", "\x00\r\n\xff"},
		{"", "\xc3\x28", string(all)},
		{strings.Repeat("\x00\xff\r\n", 6_000), "grüße", "日本"},
	} {
		r.do("FILA.ENQUEUE", r.queue, c.payload, "KEY", c.key, "HEADER", "h", c.header)
		m := r.lease(r.queue)
		if m.payload != c.payload || m.key != c.key || len(m.headers) != 2 || text(m.headers[1]) != c.header {
			r.Fatalf("enqueued %.300q with key %q, leased %.300q with %q and %d headers", c.payload, c.key, m.payload, m.key, len(m.headers))
		}
		r.want("1", "FILA.ACK", r.queue, m.receipt)
	}
}
