//go:build !linux

package yield

import "runtime"

// Processor does nothing: it is implemented on Linux only.
func Processor() {}

// Poll yields to other goroutines, which is all that Go offers.
type Poll struct{}

// NewPoll returns a poll.
func NewPoll() (*Poll, error) { return &Poll{}, nil }

// Wait returns when runnable goroutines have run.
func (p *Poll) Wait() { runtime.Gosched() }

// Close does nothing.
func (p *Poll) Close() {}
