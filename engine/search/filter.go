package search

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/storage"
)

// Filter selects messages by their records in the store; nil selects all. What is set must
// all agree.
type Filter struct {
	Header  string       // name of a header that must have a value like Value; "": any headers
	Value   string       // glob pattern
	Payload []byte       // what the payload must contain; empty: anything
	Error   *string      // what the last error must be like, see matchError; nil: anything
	Causes  []string     // the cause of the last failure must be one of these; nil: anything
	IDs     []storage.ID // the message must be one of these, which are in order; nil: any
	Origin  string       // the queue in which the message must have died; "": any, or none
	// The time at which the message came into its queue must be within these, both inclusive
	// and in Unix milliseconds: a dead message when it died, another one when it was enqueued.
	Since, Until int64 // 0: no bound
}

// Bounds of the pages of a search.
const (
	// PageBytes is the size after which a page ends. A page has at least one message of any size.
	PageBytes = 4 << 20
	// ViewBytes is what a message of a page takes in memory in addition to its record, as it is
	// found and as it is shown.
	ViewBytes = 1<<10 + 128
	// WorkMax bounds the work of one page: the bytes of the records that are
	// looked at and what the filter does with them. Without a filter PageBytes ends a page before.
	WorkMax = 64 << 20
	// IDsMax bounds the messages that a filter names.
	IDsMax = 1000
	// recordWork is the work of reading a message of few bytes.
	recordWork = 1 << 10
)

// Check returns what is wrong with a filter, and whether that is its size. Each pattern or text has at most that many
// bytes.
func (f *Filter) Check(most int) (tooBig bool, err error) {
	if f == nil {
		return false, nil
	}
	texts := []struct{ name, pattern string }{{"HEADER", f.Value}, {"ERROR", ""}}
	if f.Error != nil {
		texts[1].pattern = *f.Error
	}
	for _, t := range texts {
		if len(t.pattern) > most {
			return true, fmt.Errorf("the pattern of %s has %d bytes, the limit is %d", t.name, len(t.pattern), most)
		}
		if err := glob.Check(t.pattern); err != nil {
			return false, fmt.Errorf("the pattern of %s, %.80q, %w", t.name, t.pattern, err)
		}
	}
	if err := causes.Check(f.Causes, most); err != nil {
		return true, err
	}
	if n := len(f.IDs); n > IDsMax {
		return true, fmt.Errorf("%d times ID, at most %d in a command", n, IDsMax)
	}
	if len(f.Payload) > most {
		return true, fmt.Errorf("the text of PAYLOAD has %d bytes, the limit is %d", len(f.Payload), most)
	}
	if len(f.Origin) > most {
		return true, fmt.Errorf("the name of FROM has %d bytes, the limit is %d", len(f.Origin), most)
	}
	if f.Until > 0 && f.Since > f.Until {
		return false, fmt.Errorf("SINCE %d is after UNTIL %d", f.Since, f.Until)
	}
	return false, nil
}

// Match reports whether a message is selected, and the work beyond reading it, about one for
// each byte that is compared.
func (f *Filter) Match(r *Record) (ok bool, work int) {
	if f == nil {
		return true, 0
	}
	work = recordWork
	if !f.names(r.ID) || !f.within(r.arrived()) {
		return false, work
	}
	if d := r.Message.Dead; f.Origin != "" && (d == nil || d.Queue != f.Origin) {
		return false, work
	}
	if f.Error != nil || len(f.Causes) > 0 {
		text, name, failed := r.failure()
		work += len(text) * (1 + len(f.Causes))
		if f.Error != nil {
			work += matchWork(*f.Error, len(text))
		}
		if !failed || f.Error != nil && !matchError(*f.Error, text) || !causes.Has(f.Causes, name, text) {
			return false, work
		}
	}
	ok, compared := f.matchHeader(r.Message.Headers)
	if work += compared; !ok {
		return false, work
	}
	return bytes.Contains(r.Message.Payload, f.Payload), work
}

// Searches reports whether it selects by more than an error, a cause and the queue of the death.
func (f *Filter) Searches() bool {
	return f != nil && (f.Header != "" || len(f.Payload) > 0 || f.IDs != nil || f.Since > 0 || f.Until > 0)
}

// shownMost is how much of a pattern or name Shown returns, in bytes.
const shownMost = 512

// Shown returns what is shown of a filter: the queue of the death and the error, cut, and the first causes.
func (f *Filter) Shown() (origin string, pattern *string, named []string) {
	if f == nil {
		return "", nil, nil
	}
	if f.Error != nil {
		pattern = new(errtext.Clip(*f.Error, shownMost))
	}
	return errtext.Clip(f.Origin, shownMost), pattern, causes.Shown(f.Causes, shownMost/2)
}

// names reports whether a message is one of those that the filter names, or it names none.
func (f *Filter) names(id storage.ID) bool {
	_, named := slices.BinarySearchFunc(f.IDs, id, func(a, b storage.ID) int { return bytes.Compare(a[:], b[:]) })
	return named || f.IDs == nil
}

// within reports whether a time in Unix nanoseconds is within the bounds.
func (f *Filter) within(nanos int64) bool {
	at := nanos / int64(time.Millisecond)
	return at >= f.Since && (f.Until == 0 || at <= f.Until)
}

// matchHeader reports whether a header of the name has a value that is selected, and the work of that.
func (f *Filter) matchHeader(headers []storage.Header) (ok bool, work int) {
	if f.Header == "" {
		return true, 0
	}
	found := false
	for _, h := range headers {
		if string(h.Name) == f.Header && !found {
			work += matchWork(f.Value, len(h.Value))
			found = glob.Match(f.Value, string(h.Value))
		}
	}
	return found, work
}

// matchWork is the most that comparing a pattern with n bytes takes.
func matchWork(pattern string, n int) int {
	if strings.Contains(pattern, "*") {
		return n * len(pattern)
	}
	return n
}

// matchError reports whether an error is like a glob pattern: itself, or the text of its group
// (errtext). The pattern of a group (causes.Group) matches the errors of that group and no
// others: an error that equals the text of a group is of that group.
func matchError(pattern, text string) bool {
	return glob.Match(pattern, text) || glob.Match(pattern, errtext.Group(text))
}
