package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// signalSettings configure signals.
func signalSettings(c *Signals) []setting {
	return []setting{
		entry("signals.windows_ms", windows{&c.Windows},
			"The lengths of the windows over which [signals](signals.md) fade: 1 to 4, rising. The fields of `FILA.SIGNAL GET` are named by them, such as `5m`. "+
				"After a change, windows that were not there before begin empty, and what the others held is lost with the next write of a signal."),
		entry("signals.checkpoint_ms", millis(&c.Checkpoint, 10_000, 100, 60*60*1000),
			"How often the broker writes the signals that it records by itself: a crash takes at most so much of them. What `FILA.SIGNAL ADD` adds is written before its reply."),
	}
}

// windows is a list of lengths in milliseconds that rise.
type windows struct{ to *[]time.Duration }

const (
	windowMin  = 1000      // ms
	windowMax  = 365 * day // ms
	windowsMax = 4
)

func (w windows) reset() {
	*w.to = []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour}
}

func (w windows) set(raw any) error {
	list, ok := raw.([]any)
	if !ok {
		return fmt.Errorf("must be %s, not %v", w.bounds(), shownRaw(raw))
	}
	var all []int64
	for _, each := range list {
		n, ok := each.(int64)
		if !ok {
			return fmt.Errorf("must be %s, not with %v", w.bounds(), shownRaw(each))
		}
		all = append(all, n)
	}
	return w.take(all)
}

func (w windows) parse(s string) error {
	var all []int64
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", []", r) }) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return fmt.Errorf("must be %s, not with %.64q", w.bounds(), word)
		}
		all = append(all, n)
	}
	return w.take(all)
}

func (w windows) take(all []int64) error {
	if len(all) == 0 || len(all) > windowsMax {
		return fmt.Errorf("must be %s, not %d of them", w.bounds(), len(all))
	}
	lengths := make([]time.Duration, len(all))
	for i, n := range all {
		if n < windowMin || n > windowMax {
			return fmt.Errorf("must be %s, not with %d", w.bounds(), n)
		}
		if i > 0 && n <= all[i-1] {
			return errors.New("must rise: each length is above the one before")
		}
		lengths[i] = time.Duration(n) * time.Millisecond
	}
	*w.to = lengths
	return nil
}

func (w windows) String() string {
	var words []string
	for _, d := range *w.to {
		words = append(words, strconv.FormatInt(d.Milliseconds(), 10))
	}
	return strings.Join(words, ", ")
}

func (w windows) kind() string { return "list of ms" }
func (w windows) bounds() string {
	return fmt.Sprintf("1 to %d whole numbers of milliseconds from %d to %d that rise", windowsMax, windowMin, int64(windowMax))
}
func (w windows) literal() string { return "[" + w.String() + "]" }
