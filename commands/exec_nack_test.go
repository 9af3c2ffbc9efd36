package commands

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// judged starts a server with a queue whose on_failure hook sends messages that carry
// the header doomed, or have failed three times, to the dead-letter queue, and retries
// the others after as many seconds as they have failed.
func judged(t *testing.T) *server {
	t.Helper()
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	source := `function on_failure(msg)
	  if msg.headers["doomed"] or msg.attempts >= 3 or msg.error == "fatal" then return { action = "dlq" } end
	  return { action = "retry", delay_ms = msg.attempts * 1000 }
	end`
	if got := s.do(t, "FILA.SCRIPT", "LOAD", "orders", "ON_FAILURE", source); got[0] != '$' {
		t.Fatal(got)
	}
	return s
}

// calls compares how often the hook was asked.
func calls(t *testing.T, s *server, want string) {
	t.Helper()
	t.Helper()
	wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "orders"), map[string]string{"calls": "(integer) " + want, "errors": "(integer) 0"})
}

// exec runs commands as one transaction and returns the decoded replies.
func (s *server) exec(t *testing.T, cmds ...string) []reply {
	t.Helper()
	t.Helper()
	s.do(t, "MULTI")
	for _, c := range cmds {
		if got := s.do(t, strings.Fields(c)...); got != "+QUEUED\r\n" {
			t.Fatalf("%s: %q", c, got)
		}
	}
	v, _, err := decode(s.do(t, "EXEC"))
	if err != nil || v.kind != '*' || len(v.items) != len(cmds) {
		t.Fatalf("EXEC answers %v, %v", v, err)
	}
	return v.items
}

// field returns what a map shows under a name.
func (v reply) field(name string) string {
	for i := 0; i+1 < len(v.items); i += 2 {
		if v.items[i].text == name {
			return v.items[i+1].text
		}
	}
	return v.show("")
}

// The receipt of a lease in the same transaction is not known to its client, so the
// message is named by its id.
func TestANackOfALeaseInTheSameTransactionAsksTheHook(t *testing.T) {
	for _, c := range []struct {
		header, text, action string
	}{{"", "", "retry"}, {" HEADER doomed 1", "", "dlq"}, {"", " ERROR fatal", "dlq"}} {
		s := judged(t)
		id := strings.Split(s.do(t, strings.Fields("FILA.ENQUEUE orders x"+c.header)...), "\r\n")[1]
		r := s.exec(t, "FILA.LEASE orders", "FILA.NACK orders "+id+c.text)
		if got := r[1].field("action"); got != c.action {
			t.Errorf("a message%s, nacked%s: %s, want %s", c.header, c.text, got, c.action)
		}
		calls(t, s, "1")
	}
}

// Each failure in a transaction is one more, of messages that are leased before it begins
// as of those that are leased in it.
func TestSeveralNacksOfAMessageInATransactionAreSeveralFailures(t *testing.T) {
	for _, leased := range []bool{false, true} {
		s := judged(t)
		id := strings.Split(s.do(t, "FILA.ENQUEUE", "orders", "x"), "\r\n")[1]
		cmds := []string{"FILA.NACK orders " + id + " DELAY 0", "FILA.LEASE orders", "FILA.NACK orders " + id, "FILA.RESCHEDULE orders " + id + " 0",
			"FILA.LEASE orders", "FILA.NACK orders " + id}
		if leased {
			s.do(t, "FILA.LEASE", "orders")
		} else {
			cmds = append([]string{"FILA.LEASE orders"}, cmds...)
		}
		r := s.exec(t, cmds...)
		r = r[len(r)-6:]
		if first, second, third := r[0].field("action"), r[2].field("attempt"), r[5].field("action"); first != "retry" || second != "3" || third != "dlq" {
			t.Errorf("leased before %v: the nacks answer %s, attempt %s, %s", leased, first, second, third)
		}
		calls(t, s, "2")
	}
}

// Nor does it matter where the message is before the transaction: in memory, on disk
// only, or delayed. An explicit nack asks no hook, nor does one of a message that is not leased.
func TestANackInATransactionFindsItsMessageWhereverItIs(t *testing.T) {
	s := judged(t)
	const many = 600 // more than a window
	var last string
	for range many {
		last = strings.Split(s.do(t, "FILA.ENQUEUE", "orders", "x"), "\r\n")[1]
	}
	s.exec(t, "FILA.LEASE orders COUNT 600", "FILA.NACK orders "+last) // which may or may not be among those that are leased
	calls(t, s, "1")
	s = judged(t)
	id := strings.Split(s.do(t, "FILA.ENQUEUE", "orders", "x", "DELAY", "60000"), "\r\n")[1]
	r := s.exec(t, "FILA.RESCHEDULE orders "+id+" 0", "FILA.LEASE orders", "FILA.NACK orders "+id)
	if got := r[2].field("ready_at"); got != printMillis(s, time.Second) {
		t.Errorf("a delayed one: ready_at %s", got)
	}
	calls(t, s, "1")
	r = s.exec(t, "FILA.NACK orders "+id, "FILA.NACK orders "+id+" DEAD", "FILA.LEASE orders", "FILA.NACK orders "+id+" DELAY 7")
	for _, i := range []int{0, 1, 3} {
		if !strings.HasPrefix(r[i].text, "LEASELOST") {
			t.Errorf("a message without a lease: %s", r[i].show(""))
		}
	}
	calls(t, s, "1")
}

func printMillis(s *server, after time.Duration) string {
	return strconv.FormatInt(s.Now().Add(after).UnixMilli(), 10)
}
