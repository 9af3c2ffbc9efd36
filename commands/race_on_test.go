//go:build race

package commands

// raced reports whether the race detector watches. Most tests drive a server step by step, in one
// goroutine, where it finds nothing: their files have the build constraint !race. The others are those
// of sessions and relays, in which goroutines meet.
const raced = true
