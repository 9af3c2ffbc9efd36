// Package causes groups failures of messages by what has caused them.
//
// A failure has the cause that its consumer or a hook has named, else the group of its error (errtext): the
// error without what differs from one occurrence to the next. Failures are of one group if their causes are equal.
package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/storage"
)

// Of returns the cause of a failure, of which name is the one that was named; "": none was.
func Of(name, text string) string {
	if name != "" {
		return name
	}
	return errtext.Group(text)
}

// Failure is the last failure of a message.
type Failure struct {
	Text, Name string
	Queue      string    // in which it failed
	At         time.Time // when
	ID         storage.ID
}

// Group is the failures of messages that have one cause. A message has its last failure; one that never failed and
// is not dead is in no group.
type Group struct {
	Cause       string
	Error       string // the errors as a glob pattern: that of the cause, or if that was named, of the last error
	Count       int64  // messages
	First, Last time.Time
	Example     storage.ID       // of the last one
	Queues      map[string]int64 // messages by the queue in which they failed
}

// Groups collects the groups of a page of a queue.
type Groups struct {
	Queue string // of messages that have not died in another one

	by    map[string]*Group
	pairs int // of a group and a queue
}

// Bounds of a page: groups, and the queues in all of them together.
const (
	GroupsMax = 100
	PairsMax  = 1000
)

// Has reports whether a failure has one of some causes, of which none stands for all.
func Has(some []string, name, text string) bool {
	return len(some) == 0 || slices.Contains(some, Of(name, text))
}

// Check returns what is wrong with causes that are to be selected: at most GroupsMax of them, each of at most that many bytes.
func Check(some []string, bytes int) error {
	if n := len(some); n > GroupsMax {
		return fmt.Errorf("%d times CAUSE, at most %d in a command", n, GroupsMax)
	}
	for _, name := range some {
		if len(name) > bytes {
			return fmt.Errorf("the name of CAUSE has %d bytes, the limit is %d", len(name), bytes)
		}
	}
	return nil
}

// Shown returns the first ten of some causes, each cut at that many bytes.
func Shown(some []string, bytes int) []string {
	const most = 10
	var shown []string
	for _, name := range some[:min(len(some), most)] {
		shown = append(shown, errtext.Clip(name, bytes))
	}
	return shown
}

// Add adds a failure, or returns false for one that is for the next page: the groups, or the queues in them, would
// be too many.
func (g *Groups) Add(f *Failure) bool {
	cause := Of(f.Name, f.Text)
	group := g.by[cause]
	if group == nil && len(g.by) == GroupsMax || (group == nil || group.Queues[f.Queue] == 0) && g.pairs == PairsMax {
		return false
	}
	if group == nil {
		if g.by == nil {
			g.by = map[string]*Group{}
		}
		group = &Group{Cause: cause, First: f.At, Queues: map[string]int64{}}
		g.by[cause] = group
	}
	if group.Queues[f.Queue] == 0 {
		g.pairs++
	}
	group.Count++
	group.Queues[f.Queue]++
	if f.At.Before(group.First) {
		group.First = f.At
	}
	if group.Count == 1 || f.At.After(group.Last) {
		group.Last, group.Example, group.Error = f.At, f.ID, glob.Quote(errtext.Group(f.Text))
	}
	return true
}

// List returns the groups, those of the most messages first.
func (g *Groups) List() []Group {
	list := make([]Group, 0, len(g.by))
	for group := range maps.Values(g.by) {
		list = append(list, *group)
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Cause, b.Cause))
	})
	return list
}
