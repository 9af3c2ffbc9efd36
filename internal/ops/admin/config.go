package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// The bounds. Everything beyond one is refused; nothing waits for a place.
const (
	requestsMax = 64  // at once, without streams
	streamsMax  = 256 // of events and figures
	loginsMax   = 16  // forms that are being read
	sparesMax   = 64  // connections without a request, and of health checks

	// ConnectionsMax is how many HTTP connections there should be at once. The caller of
	// Serve bounds them.
	ConnectionsMax = requestsMax + streamsMax + sparesMax

	headerBytesMax = 64 << 10
	bodyBytesMax   = 1 << 20
	formBytesMax   = 4 << 10
	replyBytesMax  = 64 << 20 // memory of one reply
	smallBytes     = 1 << 20  // of a reply that needs no place among the large ones
	largeMax       = 4        // larger replies at once
	channelsMax    = 64       // of one stream
	liveQueues     = 100      // in figures of the broker
	liveKeys       = 20       // in figures of a queue

	headerTime  = 10 * time.Second // to send a header
	bodyTime    = 10 * time.Second // to send a body
	idleTime    = time.Minute      // between two requests of a connection
	writeTime   = 30 * time.Second // of a write without progress
	commandTime = 5 * time.Minute  // of a command

	liveEvery  = time.Second      // between two figures
	liveGroups = 5 * time.Second  // between two looks at what is wrong with all queues
	quietEvery = 15 * time.Second // between two signs of life of a quiet stream
)

// State is the condition of a broker, in a word.
type State string

// The states of a broker.
const (
	Recovering State = "recovering" // it reads its queues from disk
	Running    State = "running"
	ReadOnly   State = "read-only" // the store takes no writes, or none that need space
	Stopping   State = "stopping"
	Stuck      State = "stuck" // no task goes through its loop
	// Unreachable is a broker elsewhere that takes no connections.
	Unreachable State = "unreachable"
)

// ErrUnavailable says that a broker takes no connections yet, or any more.
var ErrUnavailable = errors.New("the broker is starting or stopping, try again in a moment")

// Broker is what the listener needs of a broker.
type Broker interface {
	// Connect opens a connection that speaks RESP. from and to are the addresses of the HTTP
	// connection that it is for. The broker takes the user for authenticated; if it is empty,
	// the connection has to authenticate as that of any client. over is closed when the
	// broker ends the connection, before the reply to a command that ends it. The error is
	// ErrUnavailable if the broker takes no connections now.
	Connect(user string, from, to net.Addr) (nc net.Conn, over <-chan struct{}, err error)
	// State returns the condition of the broker, within some two seconds.
	State(ctx context.Context) State
}

// Config is what the listener is made from.
type Config struct {
	Broker  Broker
	Version string   // of the broker
	Prefix  string   // of all paths, with a slash at both ends; empty: "/"
	Hosts   []string // names that a request may ask for, beside localhost and addresses
	// CertificateUsers makes a client with a certificate the user of its common name, if
	// there is one and it is on.
	CertificateUsers bool
	// OneUser says that Connect with no user gives connections of a user already. There is no login
	// then, and cookies are ignored: they may be those of another broker on the same host.
	OneUser bool
	// Metrics returns the format in which the scraper of a request wants the metrics, as
	// FILA.METRICS calls it, and its content type; nil: there are none.
	Metrics func(h http.Header) (format, contentType string)
	Log     zerolog.Logger
}

func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = "/"
	}
	switch {
	case c.Broker == nil:
		return errors.New("admin: a broker is required")
	case !strings.HasPrefix(c.Prefix, "/") || !strings.HasSuffix(c.Prefix, "/"):
		return errors.New("admin: the prefix needs a slash at both ends")
	}
	return nil
}
