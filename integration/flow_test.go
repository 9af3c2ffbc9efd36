package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
)

// TestPatternsAreTheSameForAllClients: each throttle key with the prefix of a pattern has a throttle of its own.
func TestPatternsAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t)
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		t.Run(w.name, func(t *testing.T) { patterns(&speaker{t, w, b}, fmt.Sprint("q", i), fmt.Sprintf("t%d:", i)) })
	}
}

func patterns(s *speaker, q, p string) {
	s.says("OK", "FILA.QUEUE CREATE "+q)
	s.says("OK", "FILA.THROTTLE SET "+p+"* RATE 0.000000001 BURST 10 CONCURRENCY 2")
	s.says("OK", "FILA.THROTTLE SET "+p+"gold:* CONCURRENCY 5 ADAPTIVE MIN 2")
	s.says("INVALID", "FILA.THROTTLE SET "+p+"* BURST 10")
	for _, payload := range []string{"a1", "a2", "a3", "b1"} {
		s.id(q + " " + payload + " KEY " + payload[:1] + " THROTTLE " + p + payload[:1])
	}
	s.id(q + " g1 KEY g THROTTLE " + p + "gold:g")
	s.id(q + " s1 KEY s THROTTLE " + p + "*")
	receipts := s.out(q, "a1", "a2", "b1", "g1", "s1")
	s.has("pattern "+p+"* concurrency 2 burst 10 tokens 8 held 2 waiting 1 instances <nil> held_until <nil>", "FILA.THROTTLE GET "+p+"a")
	s.has("pattern "+p+"* tokens 9 held 1", "FILA.THROTTLE GET "+p+"b")
	s.has("pattern "+p+"gold:* tokens 0 held 1 limit 5 min 2", "FILA.THROTTLE GET "+p+"gold:g")
	s.has("pattern "+p+"* tokens 10 held 0", "FILA.THROTTLE GET "+p+"another")
	s.has("pattern <nil> instances 3 tokens 10 held 4 passed 4", "FILA.THROTTLE GET "+p+"*") // the third is of the key that ends in *
	s.has("pattern <nil> instances 1", "FILA.THROTTLE GET "+p+"gold:*")
	for line, want := range map[string]bool{"LIST COUNT 1000": false, "LIST MATCH " + p + "a COUNT 1000": true} {
		_, list := s.page("FILA.THROTTLE " + line)
		if got := strings.Contains(fmt.Sprint(list), p+"a"); got != want {
			s.Errorf("%s names the throttle of a pattern: %v", line, got)
		}
	}
	s.has("state concurrency throttle "+p+"a", "FILA.EXPLAIN "+q+" KEY a")
	_, keys := s.page("FILA.KEYS " + q + " MATCH a")
	for what, reply := range map[string]any{"EXPLAIN": s.run("FILA.EXPLAIN " + q + " KEY a"), "KEYS": keys} {
		if want := fmt.Sprintf("throttle %q of pattern %q has 2 of 2 leases in use", p+"a", p+"*"); !strings.Contains(fmt.Sprint(reply), want) {
			s.Errorf("%s says %v, want %s", what, reply, want)
		}
	}
	// A setting of its own wins, and what is in use stays, there and back.
	s.says("OK", "FILA.THROTTLE SET "+p+"a RATE 0.000000001 BURST 10 CONCURRENCY 3")
	s.has("pattern <nil> concurrency 3 held 2 tokens 8", "FILA.THROTTLE GET "+p+"a")
	receipts = append(receipts, s.out(q, "a3")...)
	s.says("1", "FILA.THROTTLE DEL "+p+"a")
	s.says("0", "FILA.THROTTLE DEL "+p+"a")
	s.has("pattern "+p+"* concurrency 2 held 3 tokens 7", "FILA.THROTTLE GET "+p+"a")
	// A longer prefix takes over at once.
	s.id(q + " a4 KEY a THROTTLE " + p + "a")
	s.out(q)
	s.says("OK", "FILA.THROTTLE SET "+p+"a* RATE 0.000000001 BURST 10 CONCURRENCY 4")
	s.has("pattern "+p+"a* held 3 tokens 7", "FILA.THROTTLE GET "+p+"a")
	receipts = append(receipts, s.out(q, "a4")...)
	s.says("1", "FILA.THROTTLE DEL "+p+"a*")
	s.says("1", "FILA.THROTTLE DEL "+p+"*")
	s.says("1", "FILA.THROTTLE DEL "+p+"gold:*")
	s.says("<nil>", "FILA.THROTTLE GET "+p+"a")
	s.says("OK", "FILA.THROTTLE SET * CONCURRENCY 1")
	s.has("pattern * held 4", "FILA.THROTTLE GET "+p+"a")
	s.says(fmt.Sprint(len(receipts)), "FILA.ACK "+q+" "+strings.Join(receipts, " "))
	s.says("1", "FILA.THROTTLE DEL *")
}

// TestHoldsAreTheSameForAllClients: what names a throttle that is held waits until the time of the reply, also after a kill.
func TestHoldsAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t)
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 {
			continue
		}
		t.Run(w.name, func(t *testing.T) { holds(&speaker{t, w, b}, fmt.Sprint("q", i), fmt.Sprintf("p%d", i)) })
	}
}

func holds(s *speaker, q, p string) {
	s.says("OK", "FILA.QUEUE CREATE "+q+" BACKOFF 0")
	s.says("INVALID not allowed: ", "FILA.THROTTLE HOLD x:* 1000")
	s.says("ERR ms must be an integer", "FILA.THROTTLE HOLD "+p+" -1")
	s.id(q + " a THROTTLE " + p + " THROTTLE own:" + p)
	s.says("OK", "FILA.THROTTLE HOLD "+p+" 600000")
	until := s.heldUntil(p)
	s.says("OK", "FILA.THROTTLE HOLD "+p+" 1000")
	if later := s.heldUntil(p); later != until {
		s.Errorf("held until %d, then until %d", until, later)
	}
	s.out(q)
	s.has(fmt.Sprint("state held throttle ", p, " ready_at ", until), "FILA.EXPLAIN "+q+" KEY default")
	if _, list := s.page("FILA.THROTTLE LIST COUNT 1000"); !strings.Contains(fmt.Sprint(list), "own:"+p) && strings.Contains(fmt.Sprint(list), p) {
		s.has("rate <nil> concurrency <nil>", "FILA.THROTTLE GET "+p)
	} else {
		s.Errorf("LIST has %v, want %s, which is held", list, p)
	}
	s.says("OK", "FILA.THROTTLE HOLD "+p+" 0")
	s.says("<nil>", "FILA.THROTTLE GET "+p)

	receipt := s.out(q, "a")[0]
	s.says("INVALID not allowed: the message does not name throttle", "FILA.NACK "+q+" "+receipt+" HOLD other 1000")
	s.says("INVALID", "FILA.NACK "+q+" "+receipt+" DELAY 0 HOLD "+p+" 1000 HOLD own 1000")
	if _, is := s.run("FILA.EXTEND " + q + " " + receipt + " 60000").(int64); !is {
		s.Error("the lease is over after a refused nack")
	}
	s.has("action retry attempt 2", "FILA.NACK "+q+" "+receipt+" ERROR 429 HOLD "+p+" 3600000 HOLD own:"+p+" 1000")
	until = s.heldUntil(p)
	s.restart()
	if later := s.heldUntil(p); later != until {
		s.Errorf("held until %d, after a kill until %d", until, later)
	}
	s.afterAHold(q, "a", p)

	s.run("FILA.SCRIPT LOAD " + q + ` ON_FAILURE "function on_failure(msg) return { delay_ms = 0, hold = { [msg.throttle_keys[1]] = 3600000 } } end"`)
	s.has("action retry", "FILA.NACK "+q+" "+s.out(q, "a")[0]+" ERROR 429")
	s.heldUntil(p)
	s.afterAHold(q, "a", p)
}

// heldUntil returns until when a throttle is held, in Unix milliseconds.
func (s *speaker) heldUntil(throttle string) int64 {
	s.Helper()
	until, is := kit.Mapped(s.T, s.run("FILA.THROTTLE GET "+throttle))["held_until"].(int64)
	if !is {
		s.Fatalf("%s is not held: %v", throttle, s.run("FILA.THROTTLE GET "+throttle))
	}
	return until
}

// afterAHold ends the hold of a throttle, holds it anew for a short time, and waits for a message, which has to come at the
// end of that and not before.
func (s *speaker) afterAHold(q, payload, throttle string) {
	s.Helper()
	s.out(q)
	s.says("OK", "FILA.THROTTLE HOLD "+throttle+" 0")
	until := time.Now().UnixMilli() + 500
	s.says("OK", "FILA.THROTTLE HOLD "+throttle+" 500")
	ds, err := leased(s.run("FILA.LEASE " + q + " BLOCK 60000"))
	at := time.Now().UnixMilli()
	if err != nil || len(ds) != 1 || ds[0].payload != payload {
		s.Fatalf("%v is delivered (%v), want %s", ds, err, payload)
	}
	if at < until {
		s.Errorf("%s is delivered %d ms before the end of the hold", payload, until-at)
	}
	s.says("1", "FILA.RELEASE "+q+" "+ds[0].receipt)
}
