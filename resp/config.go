package resp

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// Limits bound one command during reading. Exceeding one is a protocol error: the client
// gets the error and is disconnected, because the rest of the frame cannot be skipped
// safely.
type Limits struct {
	ArgsMax         int // arguments of one command
	BulkBytesMax    int // bytes of one argument
	CommandBytesMax int // bytes of all arguments of one command
	InlineBytesMax  int // bytes of a command sent as a plain line; at most 64 KiB
}

// DefaultLimits exceed the broker's own limits, so that a slightly oversized payload is
// refused with a reply and not by closing the connection.
func DefaultLimits() Limits {
	return Limits{
		ArgsMax:         1 << 20,
		BulkBytesMax:    32 << 20,
		CommandBytesMax: 32<<20 + 1<<20,
		InlineBytesMax:  inlineBytesMax,
	}
}

// Mode says what a listener is for. The Handler gives it its meaning; 0 is that of Config.Addr and
// Config.TLSAddr.
type Mode uint8

// Listener is one more address to listen on.
type Listener struct {
	Addr string // host:port; port 0 picks a free one
	TLS  bool
	Mode Mode // of its connections, see Conn.Mode
}

// Config configures a Server. DefaultConfig sets every field.
type Config struct {
	Addr    string      // host:port to listen on without TLS; port 0 picks a free one; empty: none
	TLSAddr string      // the same with TLS
	More    []Listener  // besides these two
	TLS     *tls.Config // needed for TLSAddr, and for those of More with TLS

	MaxClients         int           // concurrent connections; further ones get an error and are closed
	AuthTimeout        time.Duration // closes a connection that has not authenticated in this time; 0: never
	UnauthenticatedMax int           // unauthenticated connections; one more evicts the oldest; 0: no bound
	IdleTimeout        time.Duration // closes a connection without traffic or pending replies; 0: never
	WriteTimeout       time.Duration // maximum time of a write without progress
	WindowMax          int           // unanswered commands of a connection at which it is not read any further
	InputBytesMax      int64         // bytes of long commands being received by all connections; beyond it a connection gets an error and is closed
	// OutputBytesMax bounds the pending bytes of a connection: of PushAsync, beyond which
	// it is closed, and of Reserve, beyond which commands wait.
	OutputBytesMax int64
	ReplyBytesMax  int64 // bytes reserved by all connections

	Limits Limits
	Log    zerolog.Logger
}

// DefaultConfig listens on a free local port and discards the log.
func DefaultConfig() Config {
	return Config{
		Addr:               "127.0.0.1:0",
		MaxClients:         10_000,
		AuthTimeout:        10 * time.Second,
		UnauthenticatedMax: 1000,
		WriteTimeout:       30 * time.Second,
		WindowMax:          1024,
		InputBytesMax:      1 << 30,
		OutputBytesMax:     8 << 20,
		ReplyBytesMax:      128 << 20,
		Limits:             DefaultLimits(),
		Log:                zerolog.Nop(),
	}
}

// check validates the configuration; the error names the field.
func (c *Config) check() error {
	for _, f := range []struct {
		name     string
		is       int64
		min, max int64
	}{
		{"MaxClients", int64(c.MaxClients), 1, 1 << 30},
		{"AuthTimeout", int64(c.AuthTimeout), 0, 1 << 62},
		{"UnauthenticatedMax", int64(c.UnauthenticatedMax), 0, 1 << 30},
		{"IdleTimeout", int64(c.IdleTimeout), 0, 1 << 62},
		{"WriteTimeout", int64(c.WriteTimeout), int64(time.Millisecond), 1 << 62},
		{"WindowMax", int64(c.WindowMax), 1, 1 << 20},
		{"InputBytesMax", c.InputBytesMax, 1 << 20, 1 << 50},
		{"OutputBytesMax", c.OutputBytesMax, 1 << 10, 1 << 40},
		{"ReplyBytesMax", c.ReplyBytesMax, 1 << 10, 1 << 50},
		{"Limits.ArgsMax", int64(c.Limits.ArgsMax), 1, 1 << 24},
		{"Limits.BulkBytesMax", int64(c.Limits.BulkBytesMax), 1, 1 << 30},
		{"Limits.CommandBytesMax", int64(c.Limits.CommandBytesMax), 1, 1 << 30},
		{"Limits.InlineBytesMax", int64(c.Limits.InlineBytesMax), 1, inlineBytesMax},
	} {
		if f.is < f.min || f.is > f.max {
			return fmt.Errorf("%w: %s is %d, must be from %d to %d", ErrConfig, f.name, f.is, f.min, f.max)
		}
	}
	if c.Addr == "" && c.TLSAddr == "" {
		return fmt.Errorf("%w: neither Addr nor TLSAddr says where to listen", ErrConfig)
	}
	secure := c.TLSAddr != ""
	for _, l := range c.More {
		secure = secure || l.TLS
	}
	if secure && c.TLS == nil {
		return fmt.Errorf("%w: there is an address for TLS, and TLS is not set", ErrConfig)
	}
	return nil
}

// listeners returns all addresses to listen on: Addr and TLSAddr, if they are set, then More.
func (c *Config) listeners() []Listener {
	var all []Listener
	if c.Addr != "" {
		all = append(all, Listener{Addr: c.Addr})
	}
	if c.TLSAddr != "" {
		all = append(all, Listener{Addr: c.TLSAddr, TLS: true})
	}
	return append(all, c.More...)
}
