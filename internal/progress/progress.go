// Package progress shows the progress of a program: a bar on a terminal, plain lines
// otherwise.
package progress

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Bar is the progress of one task. It is not safe for concurrent use.
type Bar struct {
	w     *os.File
	what  string
	total int64
	begun time.Time
	bar   *progressbar.ProgressBar // nil without a terminal
	shown int64                    // tenths of the total already reported by a line
}

// New starts a bar for total units of work.
func New(w *os.File, what string, total int64) *Bar {
	b := &Bar{w: w, what: what, total: total, begun: time.Now()}
	if term.IsTerminal(int(w.Fd())) {
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(true), progressbar.OptionUseANSICodes(true))
	}
	return b
}

// NewTimed starts a bar for work of a fixed duration in milliseconds. Without a terminal
// it shows nothing.
func NewTimed(w *os.File, what string, millis int64) *Bar {
	b := &Bar{w: w, what: what, total: millis, begun: time.Now(), shown: 10}
	if term.IsTerminal(int(w.Fd())) {
		b.bar = progressbar.NewOptions64(millis,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionUseANSICodes(true))
	}
	return b
}

// Set sets the number of completed units, at most the total. Errors of writing to the
// terminal are ignored.
func (b *Bar) Set(done int64) {
	done = min(done, b.total)
	if b.bar != nil {
		_ = b.bar.Set64(done)
		return
	}
	if tenths := done * 10 / max(b.total, 1); tenths > b.shown {
		b.shown = tenths
		rate := float64(done) / max(time.Since(b.begun).Seconds(), 1e-3)
		fmt.Fprintf(b.w, "%s: %d of %d (%d %%), %.0f/s\n", b.what, done, b.total, tenths*10, rate)
	}
}

// Note writes a separate line.
func (b *Bar) Note(format string, args ...any) {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	fmt.Fprintf(b.w, format+"\n", args...)
}

// Done ends the bar in its current state.
func (b *Bar) Done() {
	if b.bar != nil {
		_ = b.bar.Exit()
		fmt.Fprintln(b.w)
	}
}
