package bench

import "context"

// Shape describes the messages and the queue of a load.
type Shape struct {
	Queue     string
	Payload   int    // bytes
	Keys      int    // fairness keys, chosen at random; peers without them ignore it
	Throttles int    // throttles of each message, with limits that are never reached
	Tenants   bool   // each message has the throttle of its key, which a pattern covers with limits that are never reached
	Grouped   bool   // all messages are members of one group
	KeepDone  bool   // the queue keeps what it knows of acked messages
	Hook      string // source of an on_enqueue hook; messages then carry their key in a header
	Signals   bool   // the queue records signals of its messages
	Ordered   bool   // the queue is ordered
	Budgets   int    // budgets with more credits than are needed; that of its key pays for each message
}

// Peer is a measured server.
type Peer interface {
	// Name returns the name and version of the server.
	Name() string
	// Prepare creates an empty queue of the shape. It fails if the queue exists.
	Prepare(ctx context.Context, s Shape) error
	// Connect opens a session.
	Connect(ctx context.Context) (Session, error)
	// Clean removes the queue with its messages.
	Clean(ctx context.Context) error
}

// Session is one connection of a load. A single goroutine uses it, except that Close may be called at
// any time and ends a blocked call.
type Session interface {
	// Enqueue sends n messages together and returns when all are acknowledged.
	Enqueue(n int) error
	// Lease leases n messages and waits for them if necessary.
	Lease(n int) error
	// Ack acks all leased messages and waits for the reply.
	Ack() error
	Close() error
}
