package engine

import (
	"slices"
	"time"
)

// Results in the simulation: clients ack with a value, and others ask what has become of a
// message, some of them until it ends.

// resultOracle is the oracle's record of what clients were answered.
type resultOracle struct {
	sent  map[string]bool // values that were sent with an ack
	ended map[string]bool // tags of messages that are done, as a client was answered
	known map[ID]knownResult
}

// knownResult is a value that was answered to a client that did not wait.
type knownResult struct {
	queue, value string
}

func newResultOracle() resultOracle {
	return resultOracle{sent: map[string]bool{}, ended: map[string]bool{}, known: map[ID]knownResult{}}
}

// powerLost records that a power loss may have lost acks that were not synced.
func (o *resultOracle) powerLost() {
	clear(o.ended)
	clear(o.known)
}

// valueOf returns the result of an ack that is about to be sent, or nil.
func (s *sim) valueOf(d *Delivery) []byte {
	if s.rng.IntN(2) == 0 {
		return nil
	}
	value := d.Receipt.String()
	s.oracle.results.sent[value] = true
	return []byte(value)
}

// asking is the reciprocal of the chance that a client asks for a result.
func (s *sim) asking() int {
	if s.mutant == resultBeforeCommit {
		return 3
	}
	return 16
}

// ask asks for the result of a message, and perhaps waits for it.
func (s *sim) ask(cl *simClient) {
	o := &s.oracle
	m := s.anyMessage()
	if n := len(s.inHand); n > 0 && s.rng.IntN(2) == 0 {
		m = o.byID[s.inHand[s.rng.IntN(n)].Receipt.ID] // its end is near
	}
	if m == nil {
		return
	}
	req := &ResultRequest{Queue: s.home(m), ID: m.id, Block: -1}
	if s.rng.IntN(3) > 0 {
		req.Block = time.Duration(1+s.rng.IntN(3)) * 300 * time.Millisecond
	}
	before, home, acked := o.results.known[m.id], req.Queue == m.queue() && o.atHome(m), o.gone[m.tag]
	o.trace("client %d asks for the result of %s in %s, block %v", cl.client.ID, m.tag, req.Queue, req.Block)
	t := s.submit(cl, func(tx *Tx) error { return tx.Result(req) }, func(err error) {
		r := &req.Result
		o.trace("the result of %s in %s is %+v: %v", m.tag, req.Queue, r, err)
		switch {
		case err != nil:
			s.noRefusal("result")(err)
		case r.Status == ResultDone:
			o.resultDone(m, req)
		case acked && r.Status != "":
			o.fail("%s is %s after its ack was answered", m.tag, r.Status)
		case before.queue == req.Queue && !o.taken(m):
			o.fail("the result of %s was %q, and is %+v now", m.tag, before.value, r)
		case r.Status == "" && home && o.atHome(m):
			o.fail("%s is not known, though it is there", m.tag)
		}
	})
	t.asks = true
}

// resultDone checks an answer that a message is done, which must hold for good.
func (o *oracle) resultDone(m *oracleMsg, req *ResultRequest) {
	value := string(req.Result.Value)
	if req.Result.Value != nil && !o.results.sent[value] {
		o.fail("the result of %s is %q, which no client has sent", m.tag, value)
	}
	o.results.ended[m.tag] = true
	if req.Result.Value != nil {
		if had, ok := o.results.known[m.id]; ok && had.value != value {
			o.fail("the result of %s was %q, and is %q now", m.tag, had.value, value)
		}
		o.results.known[m.id] = knownResult{req.Queue, value}
	}
}

// answerEarly is the mutant that answers requests for results before the commit.
func (s *sim) answerEarly() {
	c := s.step.core
	c.out.released = slices.DeleteFunc(c.out.released, func(t *Task) bool {
		waits, ok := t.Call.(*simTask)
		if !ok || !waits.asks {
			return false
		}
		s.step.release([]*Task{t})
		waits.settle()
		return true
	})
}
