//go:build !linux

package scripting

import "runtime"

// yieldProcessor does nothing: only Linux is told.
func yieldProcessor() {}

// poll lets other goroutines have this processor: that is all Go offers.
type poll struct{}

func newPoll() (*poll, error) { return &poll{}, nil }

func (p *poll) wait() error {
	runtime.Gosched()
	return nil
}
