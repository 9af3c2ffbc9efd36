package commands

import (
	"strconv"

	"github.com/faisca/fila/resp"
)

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
		cursor: uint64(in.integer("cursor", 0)), count: int(in.integer("count", pageCount)), //nolint:gosec // the Spec bounds it
		pattern: string(in.bytes("match")), all: !in.has("match"),
	}
}

// match reports whether a name is asked for.
func (p *page) match(name string) bool { return p.all || globMatch(p.pattern, name) }

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
