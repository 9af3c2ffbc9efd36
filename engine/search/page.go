package search

import (
	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/internal/yield"
	"github.com/faisca/fila/storage"
)

// Page is a range of a queue's messages in the order of the store, of any status.
type Page struct {
	Filter *Filter // selects messages; nil: all
	// Members are numbers of groups, of one of which a message must be a member that has not died; nil: any message.
	Members map[uint64]struct{}
	Groups  *causes.Groups // collects the errors of the messages, of which none are found then; nil: they are found
	// What ends the page beside its bytes and the work of the filter: the messages that are looked at, and those that are found.
	Limit, Most int

	Looked int    // messages looked at
	Next   []byte // key at which the next page starts; nil: there is none

	from, to []byte
	found    int
}

// NewPage returns a page of at most limit messages of a queue, or of one of its fairness keys if key is not empty. cursor
// is the Next of the page before; nil starts at the beginning.
func NewPage(queue uint32, key string, cursor []byte, limit int) Page {
	prefix := storage.AppendQueuePrefix(nil, queue)
	if key != "" {
		prefix = storage.AppendKeyPrefix(nil, queue, key)
	}
	p := Page{from: prefix, to: storage.After(prefix), Limit: limit, Most: limit}
	if string(cursor) > string(prefix) {
		p.from = cursor
	}
	return p
}

// Searches reports whether the page may look at much more than it finds.
func (p *Page) Searches() bool { return p.Filter != nil || p.Groups != nil || p.Members != nil }

// Read reads the page and calls found for each message that is selected, which returns the bytes that it keeps. A page
// that searches lets other goroutines run meanwhile.
func (p *Page) Read(store storage.Reader, found func(*Record) (size int, err error)) error {
	if string(p.from) >= string(p.to) {
		return nil
	}
	pause := func() {}
	if p.Searches() {
		var b yield.Breaks
		defer b.End()
		pause = b.Take
	}
	size, work := 0, 0
	var last storage.MessageKey
	refused := false // the last message is for the next page
	more, err := Messages(store, p.from, p.to, func(r *Record) (bool, error) {
		pause()
		last = r.Key
		matches, cost := p.selects(r)
		switch {
		case !matches:
		case p.Groups != nil:
			if refused = !r.Collect(p.Groups); refused {
				return false, nil
			}
		default:
			n, err := found(r)
			if err != nil {
				return false, err
			}
			p.found++
			size += n + ViewBytes
		}
		p.Looked++
		work += len(r.Value) + cost
		return p.Looked < p.Limit && p.found < p.Most && size < PageBytes && work < WorkMax, nil
	})
	switch {
	case refused:
		p.Next = last.Append(nil)
	case more && p.Looked > 0:
		p.Next = after(last)
	}
	return err
}

// after returns the key of the smallest position of a message after the one with a key.
func after(mk storage.MessageKey) []byte {
	key := mk.Append(nil)
	for i := len(key) - 1; ; i-- { // ends at the rank, which has no carry
		if key[i]++; key[i] != 0 {
			return key
		}
	}
}

// selects reports whether a message is one of the page, and the work beyond reading it.
func (p *Page) selects(r *Record) (matches bool, work int) {
	matches, work = p.Filter.Match(r)
	if p.Members != nil {
		_, is := p.Members[r.Message.MemberOf]
		matches = is && !r.Message.Died
	}
	return matches, work
}
