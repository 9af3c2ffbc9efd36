package integration_test

import (
	"fmt"
	"testing"
)

// TestUseSettlesThrottlesForAllClients: what an ack or a nack has used is settled in throttles by cost, in both
// protocols, and after a kill while the message is leased.
func TestUseSettlesThrottlesForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t, "--storage.lease_lag_ms", "0")
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		t.Run(w.name, func(t *testing.T) { settledUse(&speaker{t, w, b}, fmt.Sprint("q", i), fmt.Sprint("t", i)) })
	}
}

func settledUse(s *speaker, q, throttle string) {
	s.says("OK", "FILA.QUEUE CREATE "+q+" BACKOFF 0")
	s.says("OK", "FILA.THROTTLE SET "+throttle+" RATE 0.000000001 BURST 1000 BY COST")
	level := func(want int) { s.Helper(); s.has(fmt.Sprint("tokens ", want), "FILA.THROTTLE GET "+throttle) }
	s.id(q + " a COST 600 THROTTLE " + throttle)
	receipt := s.out(q, "a")[0]
	level(400)
	s.says("1", "FILA.ACK "+q+" "+receipt+" USED 100")
	s.says("0", "FILA.ACK "+q+" "+receipt+" USED 100")
	level(900)
	s.id(q + " b COST 100 THROTTLE " + throttle)
	s.has("action retry", "FILA.NACK "+q+" "+s.out(q, "b")[0]+" USED 300")
	level(600)
	receipt = s.out(q, "b")[0]
	s.restart()
	level(1000) // a restart has filled it
	s.id(q + " c COST 500 THROTTLE " + throttle)
	second := s.out(q, "c")[0]
	s.says("1", "FILA.ACK "+q+" "+receipt+" USED 0")
	level(500)
	s.says("1", "FILA.ACK "+q+" "+second+" USED 700")
	level(300)
}
