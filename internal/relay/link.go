package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/rs/zerolog"
)

const (
	prefaceVersion = 1
	prefaceTime    = 5 * time.Second // for the preface of a stream
	addressMax     = 256             // bytes of a client's address
	streamClosing  = time.Minute     // after which a stream that only one side has closed is reset
	linkAlive      = 5 * time.Second // between two signs of life on a link
	linkWrite      = 5 * time.Second // a link that takes nothing for so long is broken
)

// linkConfig is the configuration of both ends of a link. The window of a stream is the least that
// the library allows: it bounds the bytes that a stream holds while they are not read.
func linkConfig(log zerolog.Logger) *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout, c.StreamCloseTimeout = linkAlive, linkWrite, streamClosing
	c.LogOutput, c.Logger = nil, linkLog{log}
	return c
}

// linkLog writes what the library logs, which is about links that break.
type linkLog struct{ log zerolog.Logger }

func (l linkLog) Print(v ...any)                 { l.log.Debug().Msg(fmt.Sprint(v...)) }
func (l linkLog) Printf(format string, v ...any) { l.log.Debug().Msg(fmt.Sprintf(format, v...)) }
func (l linkLog) Println(v ...any)               { l.log.Debug().Msg(fmt.Sprint(v...)) }

// Serve serves the streams of a link that another node has opened, until the link ends, and closes
// it. Each stream is passed to serve, on a goroutine of its own, as a connection whose remote address
// is that of the client; serve closes it.
func Serve(nc net.Conn, serve func(net.Conn), log zerolog.Logger) error {
	session, err := yamux.Server(newGatherConn(nc), linkConfig(log))
	if err != nil {
		return errors.Join(fmt.Errorf("link: %w", err), nc.Close())
	}
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return errors.Join(session.Close(), unlessEnded(err))
		}
		go func() {
			c := &streamConn{Stream: stream}
			if err := c.readPreface(); err != nil {
				log.Warn().Err(err).Str("peer", nc.RemoteAddr().String()).Msg("closing a stream of another node")
				_ = c.Close() // nothing was written
				return
			}
			serve(c)
		}()
	}
}

// unlessEnded returns an error that is more than the end of a link.
func unlessEnded(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return fmt.Errorf("link: %w", err)
}

// streamConn is a stream as a connection of a client.
type streamConn struct {
	*yamux.Stream
	client net.Addr
}

// address is the address of a client of another node.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// RemoteAddr returns the address of the client, as the node that it is connected to has told it.
func (c *streamConn) RemoteAddr() net.Addr { return c.client }

// Read reads from the stream. A deadline ends it with the error that the net package has.
func (c *streamConn) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	return n, deadlineError(err)
}

func (c *streamConn) Write(b []byte) (int, error) {
	n, err := c.Stream.Write(b)
	return n, deadlineError(err)
}

func deadlineError(err error) error {
	if errors.Is(err, yamux.ErrTimeout) {
		return os.ErrDeadlineExceeded
	}
	return err
}

// appendPreface appends the first bytes of a stream: the version, and the client's address with its
// length before it. What else is told of a client is in commands on the stream, since it may change.
func appendPreface(b []byte, client string) []byte {
	client = client[:min(len(client), addressMax)]
	b = append(b, prefaceVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(client))) //nolint:gosec // bounded
	return append(b, client...)
}

// readPreface reads what appendPreface has written.
func (c *streamConn) readPreface() error {
	if err := c.SetReadDeadline(time.Now().Add(prefaceTime)); err != nil {
		return fmt.Errorf("preface: %w", err)
	}
	client, err := parsePreface(c)
	if err != nil {
		return err
	}
	c.client = address(client)
	return c.SetReadDeadline(time.Time{})
}

func parsePreface(from io.Reader) (client string, err error) {
	var head [3]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return "", fmt.Errorf("preface: %w", err)
	}
	if head[0] != prefaceVersion {
		return "", fmt.Errorf("preface of version %d, this node knows %d: upgrade the older node", head[0], prefaceVersion)
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > addressMax {
		return "", fmt.Errorf("preface with an address of %d bytes, the limit is %d", n, addressMax)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(from, text); err != nil {
		return "", fmt.Errorf("preface: %w", err)
	}
	return string(text), nil
}

// openLink makes a link of a connection that dial opens.
func openLink(ctx context.Context, dial func(context.Context) (net.Conn, error), log zerolog.Logger) (*yamux.Session, error) {
	nc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	session, err := yamux.Client(newGatherConn(nc), linkConfig(log))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("link: %w", err), nc.Close())
	}
	return session, nil
}
