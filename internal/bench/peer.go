package bench

import "context"

// Shape is what messages are like and where they go.
type Shape struct {
	Queue     string
	Payload   int    // bytes
	Keys      int    // fairness keys, taken by chance; what knows none ignores them
	Throttles int    // throttles of each message, which hold nothing back
	Hook      string // source of an on_enqueue hook; messages then tell their key in a header
}

// Peer is a server under load.
type Peer interface {
	// Name says what it is, with its version.
	Name() string
	// Prepare makes the queue of the shape, empty. It fails if there is one already.
	Prepare(ctx context.Context, s Shape) error
	// Connect makes a session of its own.
	Connect(ctx context.Context) (Session, error)
	// Clean removes the queue and all that is in it.
	Clean(ctx context.Context) error
}

// Session is one connection of a load. Only one goroutine uses it, but Close may be
// called at any time, and ends what waits.
type Session interface {
	// Enqueue sends n messages at once and returns when all are acknowledged.
	Enqueue(n int) error
	// Lease takes n messages, waiting for them if need be.
	Lease(n int) error
	// Ack acks all that Lease has taken, and waits for the answer.
	Ack() error
	Close() error
}
