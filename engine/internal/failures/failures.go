// Package failures is what a message keeps of its failures: the last error, and a bounded list of all of them.
package failures

import (
	"cmp"
	"slices"

	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// Bounds of the list of failures of a message.
const (
	Max      = 10
	ErrorMax = 256 // bytes of an error
	NameMax  = 64  // bytes of the name of a consumer
)

// Failures are those of a message that failed at least once; nil: there are none.
type Failures struct {
	Text, Cause string // error of the last one, and its cause as it was named; "": it was not
	First, Last int64  // times in Unix nanoseconds; 0: it has not failed since it died or was redriven
	// List is the last Max failures, the oldest first, also those before it died or was redriven. It is never
	// changed, as connections read it. It lacks those that an earlier release has counted.
	List []storage.Failure
}

// Stored returns the failures that a record has, nil if there are none.
func Stored(text, cause string, first, last int64, list []storage.Failure) *Failures {
	if first == 0 && len(list) == 0 {
		return nil
	}
	return &Failures{text, cause, first, last, list}
}

// Parts returns what a record has of them, the reverse of Stored.
func (f *Failures) Parts() (text, cause string, first, last int64, list []storage.Failure) {
	if f == nil {
		return "", "", 0, 0, nil
	}
	return f.Text, f.Cause, f.First, f.Last, f.List
}

// Current returns the failures of a message since it died or was redriven, nil if there are none.
func (f *Failures) Current() *Failures {
	if f == nil || f.First == 0 {
		return nil
	}
	return f
}

// TextOr returns the error of the last failure, or what stands for it where there is none.
func (f *Failures) TextOr(instead string) string {
	if f == nil {
		return instead
	}
	return cmp.Or(f.Text, instead)
}

// History returns what a message keeps of them when it goes to another queue, nil if that is nothing.
func (f *Failures) History() *Failures {
	if f == nil || len(f.List) == 0 {
		return nil
	}
	return &Failures{List: f.List}
}

// Add adds a failure, with its error in full and its cause, and returns the failures: f itself, or the first ones. The
// list has the error and the name of the consumer as far as they fit.
func (f *Failures) Add(one storage.Failure, cause string) *Failures {
	if f == nil {
		f = &Failures{}
	}
	if f.First == 0 {
		f.First = one.At
	}
	f.Last, f.Text, f.Cause = one.At, one.Error, cause
	one.Consumer, one.Error = errtext.Clip(one.Consumer, NameMax), errtext.Clip(one.Error, ErrorMax)
	f.List = append(slices.Clone(f.List[max(len(f.List)-Max+1, 0):]), one)
	return f
}

// Same reports whether a message has the same last error in two states of it.
func Same(a, b *Failures) bool {
	return a == b || a != nil && b != nil && a.Text == b.Text && a.Cause == b.Cause
}
