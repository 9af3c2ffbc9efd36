package commands

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/resp"
)

// fields is a map of figures in a fixed order: clients of RESP2 see it as
// an array and may read it by position, so that new fields go to the end.
type fields []field

type field struct {
	name string
	num  int64
	text string
	raw  []byte   // of fieldBytes
	list []string // of fieldTexts
	maps []fields // of fieldMaps, or the one of fieldMap
	kind fieldKind
}

type fieldKind uint8

const (
	fieldNumber fieldKind = iota
	fieldText
	fieldNil
	fieldTexts
	fieldMap
	fieldMaps
	fieldBytes
)

func (f *fields) number(name string, n int64) { *f = append(*f, field{name: name, num: n}) }

func (f *fields) count(name string, n uint64) { f.number(name, int64(n)) } //nolint:gosec // a count of events does not get there

func (f *fields) millis(name string, d time.Duration) { f.number(name, d.Milliseconds()) }

func (f *fields) text(name, text string) {
	*f = append(*f, field{name: name, text: text, kind: fieldText})
}

// blob is a text that may be large: it is not copied.
func (f *fields) blob(name string, b []byte) {
	*f = append(*f, field{name: name, raw: b, kind: fieldBytes})
}

// flag is 1 or 0: booleans of RESP3 become other things in every client.
func (f *fields) flag(name string, set bool) {
	if set {
		f.number(name, 1)
		return
	}
	f.number(name, 0)
}

// optional is a text that may be missing: nil then.
func (f *fields) optional(name, text string) {
	if text == "" {
		*f = append(*f, field{name: name, kind: fieldNil})
		return
	}
	f.text(name, text)
}

// double is a number that need not be whole. It is written as a string, which is
// the same in RESP2 and RESP3 and loses nothing on the way.
func (f *fields) double(name string, v float64) {
	f.text(name, strconv.FormatFloat(v, 'f', -1, 64))
}

// ratio is rounded to four digits: more say nothing.
func (f *fields) ratio(name string, v float64) {
	const digits = 1e4
	f.double(name, math.Round(v*digits)/digits)
}

// limit is a number that may be missing: nil then, as 0 would let nothing pass.
func (f *fields) limit(name string, n uint64) {
	if n == 0 {
		f.optional(name, "")
		return
	}
	f.count(name, n)
}

// rate is a number a second that may be missing: nil then.
func (f *fields) rate(name string, perSecond float64) {
	if perSecond == 0 {
		f.optional(name, "")
		return
	}
	f.double(name, perSecond)
}

// at is a time that may be missing: nil then.
func (f *fields) at(name string, t time.Time) {
	if t.IsZero() {
		f.optional(name, "")
		return
	}
	f.number(name, t.UnixMilli())
}

// due is a time to wait for that may be missing: nil then. It is rounded up: a
// client that comes a part of a millisecond too early finds nothing.
func (f *fields) due(name string, t time.Time) {
	if !t.IsZero() {
		t = t.Add(time.Millisecond - time.Nanosecond)
	}
	f.at(name, t)
}

// age is the time since t, nil where there is none.
func (f *fields) age(name string, now, t time.Time) {
	if t.IsZero() {
		f.optional(name, "")
		return
	}
	f.millis(name, max(now.Sub(t), 0))
}

// texts is an array of strings.
func (f *fields) texts(name string, list []string) {
	*f = append(*f, field{name: name, list: list, kind: fieldTexts})
}

// group is a map within the map.
func (f *fields) group(name string, m fields) {
	*f = append(*f, field{name: name, maps: []fields{m}, kind: fieldMap})
}

// groups is an array of maps.
func (f *fields) groups(name string, list []fields) {
	*f = append(*f, field{name: name, maps: list, kind: fieldMaps})
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

// removed counts what went without an ack.
func (f *fields) removed(c *engine.Counts) {
	f.count("cancelled", c.Cancelled)
	f.count("purged", c.Purged)
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

// names lists the fields, for documents.
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

// writeEach writes names and values without the map's head.
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
		case fieldTexts:
			w.Array(len(v.list))
			for _, text := range v.list {
				w.BulkString(text)
			}
		case fieldMap:
			v.maps[0].write(w)
		case fieldBytes:
			w.Bulk(v.raw)
		case fieldMaps:
			writeMaps(w, v.maps)
		}
	}
}

// writeMaps writes an array of maps.
func writeMaps(w *resp.Writer, maps []fields) {
	w.Array(len(maps))
	for i := range maps {
		maps[i].write(w)
	}
}

// page is what the commands that list something bit by bit have in common. A
// walk begins with cursor 0 and is over when 0 comes back; what is there from
// its beginning to its end is seen.
type page struct {
	cursor, next uint64
	count        int
	pattern      string
	all          bool
}

const pageReply = "An array: the next cursor, 0 at the end, and an array. What is there during the whole walk is seen, what comes or goes meanwhile may be. "

// pageCount is how many a page holds if COUNT does not say, as in Redis' SCAN.
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
		cursor: uint64(in.Integer("cursor", 0)), count: int(in.Integer("count", pageCount)), //nolint:gosec // the Spec bounds it
		pattern: string(in.Bytes("match")), all: !in.Has("match"),
	}
}

// match reports whether a name is asked for.
func (p *page) match(name string) bool { return p.all || glob.Match(p.pattern, name) }

// write writes the next cursor and what was found, n maps.
func (p *page) write(w *resp.Writer, n int, each func(i int) *fields) {
	w.Array(2)
	w.BulkString(strconv.FormatUint(p.next, 10))
	writeEach(w, n, each)
}

// writeEach writes an array of n maps, each made when it is written: a page of ten
// thousand is never there as such.
func writeEach(w *resp.Writer, n int, each func(i int) *fields) {
	w.Array(n)
	for i := range n {
		each(i).write(w)
	}
}
