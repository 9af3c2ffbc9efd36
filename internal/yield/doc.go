// Package yield lets others go first: threads of the system, goroutines, and those whose
// sockets are ready. Go's scheduler has no call for that: runtime.Gosched looks at no
// socket as long as there is a goroutine to run.
package yield
