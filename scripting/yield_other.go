//go:build !linux

package scripting

import "runtime"

// yieldProcessor lets another goroutine have this processor: that is all Go offers.
func yieldProcessor() { runtime.Gosched() }
