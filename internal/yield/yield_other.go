//go:build !linux

package yield

import "runtime"

// Processor does nothing: only Linux is told.
func Processor() {}

// Poll lets other goroutines have this processor: that is all Go offers.
type Poll struct{}

// NewPoll returns a poll.
func NewPoll() (*Poll, error) { return &Poll{}, nil }

// Wait returns when goroutines that were ready had their turn.
func (p *Poll) Wait() { runtime.Gosched() }

// Close does nothing.
func (p *Poll) Close() {}
