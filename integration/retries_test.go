package integration_test

import (
	"fmt"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestRetriesOfAMessageAreTheSameForAllClients: in both protocols, and after a kill while it is leased.
func TestRetriesOfAMessageAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t, "--storage.lease_lag_ms", "0")
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		t.Run(w.name, func(t *testing.T) { ownRetries(&speaker{t, w, b}, fmt.Sprint("q", i)) })
	}
}

func ownRetries(s *speaker, q string) {
	s.says("OK", "FILA.QUEUE CREATE "+q+" MAXATTEMPTS 1 BACKOFF 100")
	s.says("INVALID not allowed: MAXBACKOFF 4 is below BACKOFF 5", "FILA.ENQUEUE "+q+" x BACKOFF 5 MAXBACKOFF 4")
	s.says("ERR MAXATTEMPTS must be", "FILA.PUBLISH "+q+" x MAXATTEMPTS -1")
	id := s.id(q + " often MAXATTEMPTS 3 BACKOFF 0")
	s.has("max_attempts 3 backoff_ms 0 max_backoff_ms <nil>", "FILA.GET "+q+" "+id)
	s.has("action retry attempt 2", "FILA.NACK "+q+" "+s.out(q, "often")[0])
	receipt := s.out(q, "often")[0]
	s.restart()
	s.has("action retry attempt 3", "FILA.NACK "+q+" "+receipt)
	s.has("max_attempts 3 attempt 3", "FILA.GET "+q+" "+id)
	s.has("action dlq dlq "+q+".dlq", "FILA.NACK "+q+" "+s.out(q, "often")[0])
	s.has("max_attempts 3 backoff_ms 0 status dead", "FILA.GET "+q+".dlq "+id)
	s.says("1", "FILA.REDRIVE "+q+".dlq")
	s.has("action retry attempt 2", "FILA.NACK "+q+" "+s.out(q, "often")[0])
	s.says("1", "FILA.ACK "+q+" "+s.out(q, "often")[0])

	s.says("OK", "FILA.CRON SET c"+q+" "+q+" @yearly tick MAXATTEMPTS 0 MAXBACKOFF 0")
	s.has("max_attempts 0 backoff_ms <nil> max_backoff_ms 0", "FILA.CRON GET c"+q)
	s.restart()
	s.run("FILA.CRON RUN c" + q)
	s.has("action retry attempt 2", "FILA.NACK "+q+" "+s.out(q, "tick")[0])
	s.says("1", "FILA.ACK "+q+" "+s.out(q, "tick")[0])

	s.says("OK", "FILA.KEY SET "+q+" small MAXDEPTH 1")
	s.id(q + " a KEY small")
	s.says("MAXDEPTH the queue is full: key ", "FILA.ENQUEUE "+q+" b KEY small")
	s.restart()
	testkit.Eventually(s.T, "the messages are counted", func() bool { return fmt.Sprint(kit.Mapped(s.T, s.run("FILA.KEY GET "+q+" small"))["counting"]) == "0" })
	s.says("MAXDEPTH", "FILA.ENQUEUE "+q+" b KEY small")
	s.has("max_depth 1 depth 1 weight 1", "FILA.KEY GET "+q+" small")
	s.says("OK", "FILA.KEY SET "+q+" small MAXDEPTH 0")
	s.id(q + " b KEY small")
}
