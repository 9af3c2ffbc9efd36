package resp

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// Limits bound what one command may ask the reader to hold. Going over one is a
// protocol error: the client is told, and its connection closed, since what
// follows on it is part of a frame that nobody will read.
type Limits struct {
	ArgsMax         int // arguments of one command
	BulkBytesMax    int // bytes of one argument
	CommandBytesMax int // bytes of all arguments of one command
	InlineBytesMax  int // bytes of a command sent as a plain line; at most 64 KiB
}

// DefaultLimits leave room above what the broker accepts, so that a payload
// somewhat too big is refused by a reply and not by losing the connection.
func DefaultLimits() Limits {
	return Limits{
		ArgsMax:         1 << 20,
		BulkBytesMax:    32 << 20,
		CommandBytesMax: 32<<20 + 1<<20,
		InlineBytesMax:  inlineBytesMax,
	}
}

// Config is what a Server is made of. DefaultConfig gives every field a value.
type Config struct {
	Addr    string      // host:port to listen on without TLS; port 0 picks a free one; empty: none
	TLSAddr string      // the same with TLS
	TLS     *tls.Config // needed for TLSAddr

	MaxClients    int           // connections at a time; more are told so and closed
	AuthTimeout   time.Duration // closes a connection whose client is not known by then; 0: never
	StrangersMax  int           // connections whose client is not known; one more closes the oldest; 0: no bound
	IdleTimeout   time.Duration // closes a connection without traffic and pending replies; 0: never
	WriteTimeout  time.Duration // longest a write may make no progress
	WindowMax     int           // commands of one connection that wait for their replies; then it is not read
	InputBytesMax int64         // bytes of long commands that all connections are sending; who wants more is told and closed
	// OutputBytesMax is what may wait in one connection: bytes of PushAsync, of which
	// more closes it, and bytes set aside by Reserve, for which more commands wait.
	OutputBytesMax int64
	ReplyBytesMax  int64 // bytes set aside by Reserve in all connections

	Limits Limits
	Log    zerolog.Logger
}

// DefaultConfig listens on a local port of the system's choice and logs nothing.
func DefaultConfig() Config {
	return Config{
		Addr:           "127.0.0.1:0",
		MaxClients:     10_000,
		AuthTimeout:    10 * time.Second,
		StrangersMax:   1000,
		WriteTimeout:   30 * time.Second,
		WindowMax:      1024,
		InputBytesMax:  1 << 30,
		OutputBytesMax: 8 << 20,
		ReplyBytesMax:  128 << 20,
		Limits:         DefaultLimits(),
		Log:            zerolog.Nop(),
	}
}

// check refuses what cannot work; the error names the field.
func (c *Config) check() error {
	for _, f := range []struct {
		name     string
		is       int64
		min, max int64
	}{
		{"MaxClients", int64(c.MaxClients), 1, 1 << 30},
		{"AuthTimeout", int64(c.AuthTimeout), 0, 1 << 62},
		{"StrangersMax", int64(c.StrangersMax), 0, 1 << 30},
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
	if c.TLSAddr != "" && c.TLS == nil {
		return fmt.Errorf("%w: TLSAddr is set and TLS is not", ErrConfig)
	}
	return nil
}
