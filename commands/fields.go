package commands

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/resp"
)

// fields is a map with a fixed order of fields. In RESP2 it is a flat array that clients may read by
// position, so new fields are appended.
type fields []field //nolint:recvcheck // what compares and filters maps leaves them as they are

type field struct {
	name string
	num  int64
	text string
	more any // of fieldMore: a []string, a []time.Time, a []byte, a fields or a []fields
	kind fieldKind
}

type fieldKind uint8

const (
	fieldNumber fieldKind = iota
	fieldText
	fieldNil
	fieldMore
)

func (f *fields) number(name string, n int64) { *f = append(*f, field{name: name, num: n}) }

func (f *fields) count(name string, n uint64) { f.number(name, int64(n)) }

func (f *fields) millis(name string, d time.Duration) { f.number(name, d.Milliseconds()) }

func (f *fields) text(name, text string) {
	*f = append(*f, field{name: name, text: text, kind: fieldText})
}

// blob adds a text that may be large: it is not copied.
func (f *fields) blob(name string, b []byte) {
	*f = append(*f, field{name: name, more: b, kind: fieldMore})
}

// maybe adds a text, nil if it is none.
func (f *fields) maybe(name string, b []byte) {
	if b == nil {
		f.optional(name, "")
		return
	}
	f.blob(name, b)
}

// flag adds 1 or 0: client libraries disagree on booleans of RESP3.
func (f *fields) flag(name string, set bool) {
	if set {
		f.number(name, 1)
		return
	}
	f.number(name, 0)
}

// optional adds a text, or nil if it is empty.
func (f *fields) optional(name, text string) {
	if text == "" {
		*f = append(*f, field{name: name, kind: fieldNil})
		return
	}
	f.text(name, text)
}

// double adds a floating-point number. It is written as a string, which is the same in RESP2 and
// RESP3 and exact.
func (f *fields) double(name string, v float64) {
	f.text(name, strconv.FormatFloat(v, 'f', -1, 64))
}

// sum adds a sum that was rounded many times: its last digits would only show that, so it has twelve.
func (f *fields) sum(name string, v float64) {
	const digits = 12
	if short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64); err == nil {
		v = short
	}
	f.decimal(name, v)
}

// decimal adds a floating-point number of any size, as double does. What is very small or large has an
// exponent, so that it takes few digits.
func (f *fields) decimal(name string, v float64) {
	if size := math.Abs(v); v != 0 && (size < 1e-6 || size >= 1e21) {
		f.text(name, strconv.FormatFloat(v, 'e', -1, 64))
		return
	}
	f.double(name, v)
}

// ratio adds a ratio, rounded to four digits.
func (f *fields) ratio(name string, v float64) {
	const digits = 1e4
	f.double(name, math.Round(v*digits)/digits)
}

// limit adds a number, or nil for 0: a limit that is not set.
func (f *fields) limit(name string, n uint64) {
	if n == 0 {
		f.optional(name, "")
		return
	}
	f.count(name, n)
}

// given adds a number, or nil if it is not given.
func (f *fields) given(name string, g queueset.Optional) {
	if n, ok := g.Value(); ok {
		f.count(name, n)
		return
	}
	f.optional(name, "")
}

// amount adds a number, or nil.
func (f *fields) amount(name string, n *int64) {
	if n == nil {
		f.optional(name, "")
		return
	}
	f.number(name, *n)
}

// rate adds a number per second, or nil if it is not set.
func (f *fields) rate(name string, perSecond float64) {
	if perSecond == 0 {
		f.optional(name, "")
		return
	}
	f.double(name, perSecond)
}

// at adds a time in Unix milliseconds, or nil for the zero time.
func (f *fields) at(name string, t time.Time) {
	if t.IsZero() {
		f.optional(name, "")
		return
	}
	f.number(name, t.UnixMilli())
}

// due adds a time to wait for, or nil for the zero time. It is rounded up to a millisecond, since a
// client that comes earlier finds nothing.
func (f *fields) due(name string, t time.Time) {
	if !t.IsZero() {
		t = t.Add(time.Millisecond - time.Nanosecond)
	}
	f.at(name, t)
}

// age adds the time since t, or nil for the zero time.
func (f *fields) age(name string, now, t time.Time) {
	if t.IsZero() {
		f.optional(name, "")
		return
	}
	f.millis(name, max(now.Sub(t), 0))
}

// texts adds an array of strings.
func (f *fields) texts(name string, list []string) {
	*f = append(*f, field{name: name, more: list, kind: fieldMore})
}

// times adds an array of times in Unix milliseconds.
func (f *fields) times(name string, list []time.Time) {
	*f = append(*f, field{name: name, more: list, kind: fieldMore})
}

// group adds a nested map.
func (f *fields) group(name string, m fields) {
	*f = append(*f, field{name: name, more: m, kind: fieldMore})
}

// groups adds an array of maps.
func (f *fields) groups(name string, list []fields) {
	*f = append(*f, field{name: name, more: list, kind: fieldMore})
}

func (f *fields) counts(c *engine.Counts) {
	f.number("ready", c.Ready)
	f.number("delayed", c.Delayed)
	f.number("leased", c.Leased)
	f.number("dead", c.Dead)
	f.number("keys", c.Keys)
	f.number("waiters", c.Waiters)
	f.count("enqueued", c.Enqueued)
	f.count("delivered", c.Delivered)
	f.count("acked", c.Acked)
	f.count("nacked", c.Nacked)
	f.count("expired", c.Expired)
	f.count("dead_lettered", c.DeadLettered)
	f.count("dropped", c.Dropped)
	f.count("released", c.Released)
	f.count("redriven", c.Redriven)
	f.flag("counting", c.Counting)
	f.count("deduplicated", c.Deduplicated)
	f.count("ttl_expired", c.TTLExpired)
}

// removed adds the counters of messages that were removed without an ack.
func (f *fields) removed(c *engine.Counts) {
	f.count("cancelled", c.Cancelled)
	f.count("purged", c.Purged)
}

// others are the counters that came last.
func (f *fields) others(c *engine.Counts) {
	f.count("undelivered", c.Undelivered)
	f.count("rounds", c.Rounds)
	for i, reason := range engine.DeadReasons() {
		f.count("dead_"+reason, c.DeadBy[i])
	}
}

// results are the figures of results.
func (f *fields) results(c *engine.Counts) {
	f.count("results", c.Results)
	f.number("result_waits", c.ResultWaits)
}

// topics are the figures of topics.
func (f *fields) topics(t *engine.TopicStats) {
	f.number("topics", t.Topics)
	f.number("bindings", t.Bindings)
	f.count("published", t.Published)
	f.count("unmatched", t.Unmatched)
	f.count("copies", t.Copies)
}

// figuresFields are those of a queue of FILA.FIGURES.
func figuresFields(q *engine.QueueFigures, now time.Time) *fields {
	f := newFields()
	f.text("name", q.Name)
	f.optional("dlq", q.DLQ)
	f.flag("dead_letter", q.DeadLetter)
	f.flag("paused_in", q.PausedIn)
	f.flag("paused_out", q.PausedOut)
	f.flag("redrive_running", q.Redriving)
	f.counts(&q.Counts)
	f.removed(&q.Counts)
	f.others(&q.Counts)
	f.keysIn(q, engine.KeyReady, engine.KeyNoConsumer, engine.KeyThrottled, engine.KeyConcurrency, engine.KeyPaused, engine.KeyLoading,
		engine.KeyLeased, engine.KeyDelayed, engine.KeyNoCredit, engine.KeyOrdered)
	f.age("oldest_ready_ms", now, q.OldestReady)
	f.age("swept_ms", now, q.SweptAt)
	f.micros("wait_p50_us", q.Wait.P50)
	f.micros("wait_p99_us", q.Wait.P99)
	f.micros("work_p50_us", q.Work.P50)
	f.micros("work_p99_us", q.Work.P99)
	f.number("scripts_open", openScripts(q, now))
	f.results(&q.Counts)
	f.flag("ordered", q.Ordered)
	f.state(&q.State)
	f.keysIn(q, engine.KeyBusy) // states that were added later follow
	f.count("replaced", q.Replaced)
	f.keysIn(q, engine.KeyGathering, engine.KeyHeld)
	f.number("dead_letters", q.Judged.Dead)
	f.optional("dlq_of", q.DLQOf)
	f.ratio("in_rate", q.Judged.In)
	f.ratio("out_rate", q.Judged.Out)
	var troubles []string
	for t := range q.Judged.Troubles.All() {
		troubles = append(troubles, t.String())
	}
	f.texts("troubles", troubles)
	return f
}

// keysIn adds how many keys of a queue are in states.
func (f *fields) keysIn(q *engine.QueueFigures, states ...engine.KeyState) {
	for _, s := range states {
		f.number("keys_"+s.String(), q.States[s].Keys)
	}
}

// stateWords lists the states in the order of their rule, for documents.
func stateWords() string {
	words := make([]string, engine.KeyEmpty+1)
	for s := range words {
		words[s] = engine.KeyState(s).String()
	}
	return "the first that holds of " + strings.Join(words, ", ")
}

// state adds the state of a queue.
func (f *fields) state(s *engine.QueueState) {
	f.text("state", s.State.String())
	f.optional("reason", s.Reason)
}

// openScripts counts the hooks of a queue whose breaker is not closed. It takes a lock of each: not
// for a turn.
func openScripts(q *engine.QueueFigures, now time.Time) (n int64) {
	for _, h := range q.Hooks {
		if h != nil && h.Stats(now).State != hook.BreakerClosed {
			n++
		}
	}
	return n
}

func (f *fields) engine(s *engine.Stats) {
	f.number("queues", s.Queues)
	f.counts(&s.Counts)
	f.number("blocked_clients", s.Blocked)
	f.flag("writable", s.Writable)
	f.count("recoveries", s.Recoveries)
	f.count("turns", s.Turns)
	f.count("tasks", s.Tasks)
	f.count("commits", s.Commits)
	f.number("messages_in_memory", s.InMemory)
	f.number("body_bytes", s.BodyBytes)
	f.number("time", s.Now.UnixMilli())
}

// names returns the names of the fields, for documents.
func (f *fields) names() string {
	names := make([]string, len(*f))
	for i := range *f {
		names[i] = (*f)[i].name
	}
	return strings.Join(names, " ")
}

func (f *fields) write(w *resp.Writer) {
	w.Map(len(*f))
	f.writeEach(w)
}

// writeEach writes names and values without the header of the map.
func (f *fields) writeEach(w *resp.Writer) {
	for i := range *f {
		v := &(*f)[i]
		w.BulkString(v.name)
		switch v.kind {
		case fieldNumber:
			w.Int(v.num)
		case fieldText:
			w.BulkString(v.text)
		case fieldNil:
			w.Null()
		case fieldMore:
			v.writeMore(w)
		}
	}
}

func (v *field) writeMore(w *resp.Writer) {
	switch more := v.more.(type) {
	case []string:
		writeTexts(w, more)
	case []time.Time:
		w.Array(len(more))
		for _, t := range more {
			w.Int(t.UnixMilli())
		}
	case []byte:
		w.Bulk(more)
	case fields:
		more.write(w)
	case []fields:
		writeMaps(w, more)
	}
}

// writeMaps writes an array of maps.
func writeMaps(w *resp.Writer, maps []fields) {
	w.Array(len(maps))
	for i := range maps {
		maps[i].write(w)
	}
}

// page is the common part of commands that list in pages. An iteration starts with cursor 0 and has
// ended when the returned cursor is 0. What exists during the whole iteration is returned.
type page struct {
	cursor  uint64
	count   int
	pattern string
	all     bool
}

const pageReply = "An array: the next cursor, 0 at the end, and an array. Entries that exist during the whole iteration are returned; those created or deleted meanwhile may be. "

// pageCount is the default of COUNT, as in Redis' SCAN.
const pageCount = 10

func pageOptions() []Arg {
	return []Arg{
		{Name: "pattern", Type: Pattern, Token: "MATCH", Optional: true},
		{Name: "c", Type: Integer, Token: "CURSOR", Optional: true},
		{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
	}
}

func parsePage(in *input) page {
	return page{
		cursor: uint64(in.Integer("cursor", 0)), count: int(in.Integer("count", pageCount)),
		pattern: string(in.Bytes("match")), all: !in.Has("match"),
	}
}

// match reports whether a name matches the pattern, if there is one.
func (p *page) match(name string) bool { return p.all || glob.Match(p.pattern, name) }

// writeEach writes an array of n maps. Each map is made when it is written, so a large page is never
// in memory as a whole.
func writeEach(w *resp.Writer, n int, each func(i int) *fields) {
	w.Array(n)
	for i := range n {
		f := each(i)
		f.write(w)
		f.recycle()
	}
}

// fieldsPool has fields for the maps of long lists.
var fieldsPool sync.Pool //nolint:gochecknoglobals // spare memory has no state

// newFields returns empty fields, of which there may be many in one reply.
func newFields() *fields {
	if f, ok := fieldsPool.Get().(*fields); ok {
		return f
	}
	f := make(fields, 0, 64)
	return &f
}

// recycle makes written fields available to newFields.
func (f *fields) recycle() {
	clear(*f)
	*f = (*f)[:0]
	fieldsPool.Put(f)
}

// lack is the budget that does not cover the next message of a key, or nil.
func (f *fields) lack(l *engine.Lack) {
	if l == nil {
		f.optional("budget", "")
		f.optional("charge", "")
		f.optional("available", "")
		return
	}
	f.text("budget", l.Budget)
	f.number("charge", l.Charge)
	f.number("available", l.Available)
}

// waitsFor adds the message of an ordered queue that a key waits for, or nil.
func (f *fields) waitsFor(k *engine.KeyInfo) {
	if k.WaitsFor == (engine.ID{}) {
		f.optional("waits_for", "")
		return
	}
	f.text("waits_for", k.WaitsFor.String())
}
