package outbox

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// verdict is what a refusal of the broker says about a row.
type verdict int

const (
	taken    verdict = iota // the message is in the broker
	final                   // it is refused for good: the row is marked, and others go on
	keyWaits                // the rows of this queue and key wait
	allWait                 // the rows of this queue wait
	brokerIs                // the broker takes nothing now
)

// judge returns the verdict of an error of FILA.ENQUEUE. What is not known makes rows of the key wait: it neither loses a
// message nor stops the others.
func judge(err error) verdict {
	var refused redis.Error
	switch {
	case err == nil:
		return taken
	case !errors.As(err, &refused):
		return brokerIs // no reply: the connection
	}
	switch code(err) {
	case "ERR", "INVALID", "TOOBIG", "NOQUEUE", "NOGROUP", "NOBUDGET", "SEALED", "CANCELLED":
		return final
	case "PAUSED", "NOPERM":
		return allWait
	case "LOADING", "MISCONF", "OOM", "NOAUTH", "WRONGPASS", "READONLY", "MOVED", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "EXECABORT":
		return brokerIs
	default: // MAXDEPTH among them
		return keyWaits
	}
}

// code returns the code of an error of the broker, or "connection".
func code(err error) string {
	if refused, is := errors.AsType[redis.Error](err); is {
		first, _, _ := strings.Cut(refused.Error(), " ")
		return first
	}
	return "connection"
}

// brokerError is a refusal of the broker that is not about a row, or a connection without a reply.
type brokerError struct{ err error }

func (e *brokerError) Error() string { return fmt.Sprintf("broker: %v", e.err) }
func (e *brokerError) Unwrap() error { return e.err }

// held is what became of the rows of a batch, and which keys and queues wait until it is over: their rows have kept their
// place in the table.
type held struct {
	waiting map[string]bool // queues, and queues with keys as row.group says
	codes   map[string]int  // refusals by their code
}

func newHeld() *held { return &held{waiting: map[string]bool{}, codes: map[string]int{}} }

// waits reports whether a row has to wait.
func (h *held) waits(r *row) bool { return h.waiting[r.queue] || h.waiting[r.group()] }

// note keeps what the broker has said about a row. It returns the error that is about the broker.
func (h *held) note(r *row, err error) error {
	v := judge(err)
	if v != taken && v != brokerIs {
		h.codes[code(err)]++
	}
	switch v {
	case brokerIs:
		return err
	case keyWaits:
		h.waiting[r.group()] = true
	case allWait:
		h.waiting[r.queue] = true
	case taken:
		r.done = true
	case final:
		r.done, r.refused = true, err
	}
	return nil
}

// waitsMax bounds the keys that a relay leaves out: beyond it, a queue with a key that is full waits as a whole.
const waitsMax = 1000

// How long what waits is left out, twice as long each time.
const (
	pauseFirst = 200 * time.Millisecond
	pauseMost  = 30 * time.Second
)

// waits are the keys and queues whose rows were refused for a time: they are not read before it is over.
type waits struct {
	mu  sync.Mutex
	all map[string]waiting
}

type waiting struct {
	until time.Time
	pause time.Duration
}

// update notes the end of a batch.
func (w *waits) update(h *held, rows []*row, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) > 0 {
		for _, r := range rows {
			if r.done && r.refused == nil {
				delete(w.all, r.queue)
				delete(w.all, r.group())
			}
		}
	}
	for what := range h.waiting {
		if queue, _, isKey := strings.Cut(what, "\n"); isKey && len(w.all) >= waitsMax {
			what = queue
		}
		old := w.all[what]
		if now.Before(old.until) {
			continue // another worker has noted it
		}
		pause := min(max(2*old.pause, pauseFirst), pauseMost)
		w.all[what] = waiting{until: now.Add(pause), pause: pause}
	}
}

// now returns what waits. What has waited long and was not refused again is forgotten.
func (w *waits) now(now time.Time) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for what, x := range w.all {
		switch {
		case now.Before(x.until):
			all = append(all, what)
		case now.Sub(x.until) > 2*pauseMost:
			delete(w.all, what)
		}
	}
	return all
}
