package integration_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ledger records replies and checks each against the earlier ones. It sees only replies, never the
// broker's state.
type ledger struct {
	mu       sync.Mutex
	era      int               // number of kills so far
	answered map[string]string // payload → id of answered enqueues
	ids      map[string]string // payload → id in deliveries
	receipts map[string]bool   // all receipts ever issued
	acked    map[string]uint64 // id → acked delivery number
	held     map[string]hold   // id → the latest lease that the client has not ended
	wrong    []string

	// forgets says whether the broker may have forgotten a lease of a time because of something else than a kill until
	// another; nil: never.
	forgets func(from, to time.Time) bool
}

// hold is a lease known to a client.
type hold struct {
	receipt string
	era     int
	until   time.Time
}

func newLedger() *ledger {
	return &ledger{
		answered: map[string]string{}, ids: map[string]string{}, receipts: map[string]bool{}, acked: map[string]uint64{}, held: map[string]hold{},
	}
}

func (l *ledger) breach(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// killed forgets the leases, since a kill may lose those of the last milliseconds.
func (l *ledger) killed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.era++
}

func (l *ledger) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.era
}

// answers returns the number of answered enqueues.
func (l *ledger) answers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// backlog returns the number of answered enqueues without an ack.
func (l *ledger) backlog() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered) - len(l.acked)
}

func (l *ledger) enqueued(payload, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered[payload] = id
}

// delivered records a reply to a lease that was sent in the given era.
func (l *ledger) delivered(d delivery, era int, visibility time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, fence := d.id(), fenceOf(d.receipt)
	if l.receipts[d.receipt] {
		l.breach("receipt %s was handed out twice", d.receipt)
	}
	l.receipts[d.receipt] = true
	if before, seen := l.ids[d.payload]; seen && before != id {
		l.breach("%s was enqueued once and has the ids %s and %s", d.payload, before, id)
	}
	l.ids[d.payload] = id
	// A lease with a greater number than the acked one was granted after the ack, in whichever
	// order the replies are seen.
	if at, gone := l.acked[id]; gone && fence > at {
		l.breach("%s was acked and came again as %s", id, d.receipt)
	}
	begun := d.until.Add(-visibility)
	if h, live := l.held[id]; live && h.era == l.era && era == l.era && begun.Before(h.until) && fence > fenceOf(h.receipt) &&
		(l.forgets == nil || !l.forgets(h.until.Add(-visibility), begun)) {
		l.breach("%s is leased until %s and was leased again as %s at %s", h.receipt, h.until, d.receipt, begun)
	}
	l.held[id] = hold{receipt: d.receipt, era: era, until: d.until}
}

// givesUp is called before a lease is ended, since another may begin from then on.
func (l *ledger) givesUp(d delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[d.id()].receipt == d.receipt {
		delete(l.held, d.id())
	}
}

// ack records an honoured ack.
func (l *ledger) ack(d delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[d.id()] = fenceOf(d.receipt)
}

// check is called at the end, when the queue is empty: every answered enqueue was delivered under
// the id in its reply.
func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for payload, id := range l.answered {
		if got, seen := l.ids[payload]; !seen {
			lost++
		} else if got != id {
			l.breach("%s was answered %s and delivered as %s", payload, id, got)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acknowledged messages were lost", lost, len(l.answered))
	}
	for i, w := range l.wrong {
		if i == 10 {
			t.Errorf("and %d more", len(l.wrong)-i)
			break
		}
		t.Error(w)
	}
}

func fenceOf(receipt string) uint64 {
	_, text, _ := strings.Cut(receipt, ":")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// TestTheLedgerSeesBreaches tests the test: a ledger without checks would pass everything.
func TestTheLedgerSeesBreaches(t *testing.T) {
	const visibility = time.Minute
	now := time.Now()
	grant := func(receipt string, after time.Duration) delivery {
		return delivery{receipt: receipt, payload: "p", until: now.Add(after + visibility)}
	}
	for name, breach := range map[string]func(l *ledger){
		"leased twice": func(l *ledger) { l.delivered(grant("a:2", time.Second), 0, visibility) },
		"same receipt": func(l *ledger) { l.killed(); l.delivered(grant("a:1", time.Second), 1, visibility) },
		"came again after ack": func(l *ledger) {
			d := grant("a:1", 0)
			l.givesUp(d)
			l.ack(d)
			l.killed()
			l.delivered(grant("a:3", 0), 1, visibility)
		},
		"two ids": func(l *ledger) { l.delivered(grant("b:1", 0), 0, visibility) },
	} {
		l := newLedger()
		l.delivered(grant("a:1", 0), 0, visibility)
		if breach(l); len(l.wrong) == 0 {
			t.Errorf("%s: not seen", name)
		}
	}
	for name, fine := range map[string]func(l *ledger){
		"expired":    func(l *ledger) { l.delivered(grant("a:2", visibility), 0, visibility) },
		"released":   func(l *ledger) { l.givesUp(grant("a:1", 0)); l.delivered(grant("a:2", 0), 0, visibility) },
		"after kill": func(l *ledger) { l.killed(); l.delivered(grant("a:9", 0), 1, visibility) },
	} {
		l := newLedger()
		l.delivered(grant("a:1", 0), 0, visibility)
		if fine(l); len(l.wrong) != 0 {
			t.Errorf("%s: %v", name, l.wrong)
		}
	}
}
