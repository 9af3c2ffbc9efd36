//go:build !linux

package scripting

import "time"

var started = time.Now()

// threadTime is the time on the wall: nothing better is known everywhere.
func threadTime() time.Duration { return time.Since(started) }
