package integration_test

import (
	"fmt"
	"testing"
)

// TestWhatIsDoneIsTheSameForAllClients: in both protocols, and after a kill while a message is leased and once it is done.
func TestWhatIsDoneIsTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t, "--storage.lease_lag_ms", "0")
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		t.Run(w.name, func(t *testing.T) { keptDone(&speaker{t, w, b}, fmt.Sprint("q", i)) })
	}
}

func keptDone(s *speaker, q string) {
	s.says("OK", "FILA.QUEUE CREATE "+q+" KEEPDONE 3600000 RESULTTTL 0")
	id := s.id(q + " first KEY acme HEADER trace 42")
	receipt := s.out(q, "first")[0]
	s.run("FILA.EXTEND " + q + " " + receipt + " 60000 PROGRESS half")
	s.has("status leased progress half", "FILA.GET "+q+" "+id)
	s.has("status pending progress half", "FILA.RESULT "+q+" "+id)
	s.says("1", "FILA.ACK "+q+" "+receipt+" RESULT value")
	s.has("status done key acme deliveries 1 payload <nil> result value progress <nil>", "FILA.GET "+q+" "+id)
	s.has("status done value value", "FILA.RESULT "+q+" "+id)

	second := s.id(q + " second")
	receipt = s.out(q, "second")[0]
	s.run("FILA.EXTEND " + q + " " + receipt + " 60000 PROGRESS half")
	s.restart()
	s.has("status leased progress <nil>", "FILA.GET "+q+" "+second)
	s.says("1", "FILA.ACK "+q+" "+receipt)
	s.restart()
	s.has("status done attempt 1 result <nil>", "FILA.GET "+q+" "+second)
	s.has("status done value <nil>", "FILA.RESULT "+q+" "+second)
	s.has("status done result value", "FILA.GET "+q+" "+id)
	done := func(options string) int {
		_, list := s.page("FILA.BROWSE " + q + " DONE " + options)
		return len(list)
	}
	if all, one, none := done("COUNT 10"), done("KEY acme HEADER trace 4*"), done("UNTIL 1000"); all != 2 || one != 1 || none != 0 {
		s.Errorf("%d messages are done, %d of the key with the header, %d in 1970", all, one, none)
	}
	s.run("FILA.PURGE " + q)
	if n := done("COUNT 10"); n != 0 {
		s.Errorf("%d messages are done after a purge", n)
	}
}
