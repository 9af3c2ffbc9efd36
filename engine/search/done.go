package search

import (
	"errors"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/internal/yield"
	"github.com/faisca/fila/storage"
)

// KnownFor returns for how long a queue with these settings knows of the end of a message; 0: not at all. value says
// whether its consumer has given one:
//
//	KEEPDONE  value  the record has                      it is known for
//	no        no     there is none
//	no        yes    the value                           RESULTTTL
//	yes       no     what is known of the message        KEEPDONE
//	yes       yes    both                                the longer of both
func KnownFor(set *queueset.Values, value bool) time.Duration {
	if value {
		return max(set.Duration(queueset.KeepDone), set.Duration(queueset.ResultTTL))
	}
	return set.Duration(queueset.KeepDone)
}

// End is the record of the end of a message, as the store has it.
type End struct {
	ID    storage.ID
	Rec   storage.Result
	Bytes int // of the record
}

// decode reads the record of the end of a message. ok is false if it has a value only.
func decode(id storage.ID, value []byte) (e *End, ok bool, err error) {
	e = &End{ID: id, Bytes: len(value)}
	err = e.Rec.Decode(value)
	return e, e.Rec.Attempts != 0, err
}

// Value is what the consumer has given; nil: nothing.
func (e *End) Value() []byte {
	if e.Rec.Value == nil && !e.Rec.NoValue {
		return []byte{}
	}
	return e.Rec.Value
}

// FindEnd searches generations for the record of the end of a message; nil: there is none that is known of the message.
func FindEnd(store storage.Reader, queue uint32, ends []int64, id storage.ID) (*End, error) {
	e, _, err := FindResult(store, queue, ends, id)
	if e == nil || e.Rec.Attempts == 0 {
		return nil, err
	}
	return e, nil
}

// FindResult is FindEnd for a record that has a value only, too. It returns the key of the record as well.
func FindResult(store storage.Reader, queue uint32, ends []int64, id storage.ID) (e *End, key []byte, err error) {
	value, key, err := generation.Find(store, storage.Results, queue, ends, string(id[:]))
	if value == nil || err != nil {
		return nil, nil, err
	}
	if e, _, err = decode(id, value); err != nil {
		return nil, nil, err
	}
	return e, key, nil
}

// Known reports whether a queue with these settings still knows of the end.
func (e *End) Known(set *queueset.Values, now int64) bool {
	return e.Rec.At+int64(KnownFor(set, !e.Rec.NoValue)) > now
}

// CheckDone returns what is wrong with a filter of messages that are done, as Check does.
func (f *Filter) CheckDone(most int) (tooBig bool, err error) {
	if f != nil && (len(f.Payload) > 0 || f.Error != nil || f.Origin != "") {
		return false, errors.New("DONE goes with KEY, HEADER, SINCE and UNTIL: of a message that is done there is no payload and no error")
	}
	return f.Check(most)
}

// matchDone reports whether a message that is done is selected, and the work beyond reading its record.
func (f *Filter) matchDone(rec *storage.Result) (ok bool, work int) {
	if f == nil {
		return true, 0
	}
	if !f.within(rec.At) {
		return false, 0
	}
	return f.matchHeader(rec.Headers)
}

// Done is a page of the messages of a queue that are done: the newest generation of records first, within it by id, the
// newest first.
type Done struct {
	Queue  uint32
	Ends   []int64 // generations of records
	Set    queueset.Values
	Now    int64
	Key    string // "": of all fairness keys
	Filter *Filter
	Limit  int   // messages to look at
	At     Place // where it begins; once it was read, where the next one does

	Found []*End

	looked, size, work int
}

// Read reads the page. Other goroutines run meanwhile: a page may pass over very many records.
func (p *Done) Read(store storage.Reader) error {
	var b yield.Breaks
	defer b.End()
	for i, began := range slices.Backward(p.Ends) {
		if p.At != (Place{}) && began > p.At.generation || !p.mayHave(i) {
			continue
		}
		if full, err := p.generation(store, began, b.Take); full || err != nil {
			return err
		}
	}
	p.At = Place{}
	return nil
}

// mayHave reports whether a generation may have messages that the filter selects by their time, and that are known.
func (p *Done) mayHave(i int) bool {
	last := p.Now // when its last record was added
	if i+1 < len(p.Ends) {
		last = p.Ends[i+1]
	}
	f := p.Filter
	return last+int64(KnownFor(&p.Set, true)) > p.Now && (f == nil || last/int64(time.Millisecond) >= f.Since && (f.Until == 0 || p.Ends[i]/int64(time.Millisecond) <= f.Until))
}

// generation reads the records of a generation, the newest id first, and reports whether the page is full.
func (p *Done) generation(store storage.Reader, began int64, pause func()) (full bool, err error) {
	prefix := storage.AppendDedupPrefix(nil, p.Queue, began)
	start := storage.After(prefix)
	it := store.Scan(storage.Results, prefix, start)
	defer it.Close()
	if p.At.generation == began {
		start = storage.AppendResultKey(nil, p.Queue, began, p.At.id)
	}
	for ok := it.Before(start); ok; ok = it.Before(it.Key()) {
		if p.looked >= p.Limit || p.size >= PageBytes || p.work >= WorkMax {
			return true, nil
		}
		pause()
		_, _, id, err := storage.ParseResultKey(it.Key())
		if err == nil {
			err = p.look(id, it.Value)
		}
		if err != nil {
			return false, err
		}
		p.At = Place{began, id}
	}
	return false, it.Err()
}

// look looks at a record, unless its id says that it is of another key.
func (p *Done) look(id storage.ID, value func() []byte) error {
	if p.work += recordWork; p.Key != "" && id.KeyHash() != storage.KeyHash(p.Key) {
		return nil
	}
	e, is, err := decode(id, slices.Clone(value()))
	if err != nil {
		return err
	}
	p.work += e.Bytes
	if !is || p.Key != "" && e.Rec.Key != p.Key || !e.Known(&p.Set, p.Now) {
		return nil
	}
	p.looked++
	matches, work := p.Filter.matchDone(&e.Rec)
	if p.work += work; matches {
		p.Found = append(p.Found, e)
		p.size += e.Bytes + ViewBytes
	}
	return nil
}
