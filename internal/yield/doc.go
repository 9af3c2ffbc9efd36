// Package yield lets other work run first: kernel threads, goroutines, and goroutines
// whose sockets are ready. Go has no call for the last: runtime.Gosched does not poll
// sockets while a goroutine is runnable.
package yield
