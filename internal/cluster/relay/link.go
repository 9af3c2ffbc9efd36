package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rs/zerolog"
)

const (
	prefaceVersion = 1
	prefaceTime    = 5 * time.Second // for the preface of a stream
	addressMax     = 256             // bytes of a client's address
	finishTime     = time.Second     // for the other node to close a link that is ended in order
)

// Serve serves the streams of a link that another node has opened, until the link ends, and closes
// it. Each stream is passed to serve, on a goroutine of its own, as a connection whose remote address
// is that of the client; serve closes it.
//
// The caller closes finished once it executes nothing more that comes with a link, and every reply is written. The other
// node is told, so that it takes what has no reply to the next leader. nil: the link just breaks in the end.
func Serve(nc net.Conn, finished <-chan struct{}, serve func(net.Conn), log zerolog.Logger) error {
	s := newSession(nc, func(st *stream) {
		c := &streamConn{stream: st}
		if err := c.readPreface(); err != nil {
			log.Warn().Err(err).Str("peer", nc.RemoteAddr().String()).Msg("closing a stream of another node")
			_ = c.Close() // nothing was written
			return
		}
		serve(c)
	})
	select {
	case <-s.over:
	case <-finished:
		s.finish()
	}
	return unlessEnded(s.err)
}

// unlessEnded returns an error that is more than the end of a link.
func unlessEnded(err error) error {
	if errors.Is(err, errFinished) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return fmt.Errorf("link: %w", err)
}

// streamConn is a stream as a connection of a client.
type streamConn struct {
	*stream
	client net.Addr
}

// address is the address of a client of another node.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// RemoteAddr returns the address of the client, as the node that it is connected to has told it.
func (c *streamConn) RemoteAddr() net.Addr { return c.client }

// preface returns the first bytes of a stream: the version, and the client's address with its
// length before it. What else is told of a client is in commands on the stream, since it may change.
func preface(client string) []byte {
	client = client[:min(len(client), addressMax)]
	b := []byte{prefaceVersion}
	b = binary.BigEndian.AppendUint16(b, uint16(len(client)))
	return append(b, client...)
}

// readPreface reads what preface has written.
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
