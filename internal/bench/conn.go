package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Conn is a RESP2 connection for load generation. Commands are appended and sent together; replies are
// read one by one and parsed in place. It is not safe for concurrent use.
type Conn struct {
	nc   net.Conn
	out  []byte
	in   []byte
	r, w int // in[r:w] is unread
}

// dialTimeout bounds connecting, not the commands after it.
const dialTimeout = 5 * time.Second

// Dial connects to an address.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewConn(nc), nil
}

// NewConn returns a Conn on an open connection.
func NewConn(nc net.Conn) *Conn { return &Conn{nc: nc, in: make([]byte, 16<<10)} }

// Close closes the connection. A read that is blocked in another goroutine returns an error.
func (c *Conn) Close() error { return c.nc.Close() }

// RefusalError is an error reply.
type RefusalError string

func (e RefusalError) Error() string { return string(e) }

// Do sends one command and returns its reply: an int64, a string, a []any, nil, or a
// [RefusalError] as the error.
func (c *Conn) Do(args ...string) (any, error) {
	c.Append(args...)
	if err := c.Flush(); err != nil {
		return nil, err
	}
	return c.Reply()
}

// Append adds a command to the output buffer.
func (c *Conn) Append(args ...string) {
	c.array(len(args))
	for _, a := range args {
		c.bulk(a)
	}
}

func (c *Conn) array(n int) { c.head('*', n) }

func (c *Conn) head(kind byte, n int) {
	c.out = append(strconv.AppendInt(append(c.out, kind), int64(n), 10), '\r', '\n')
}

func (c *Conn) bulk(s string) {
	c.head('$', len(s))
	c.out = append(append(c.out, s...), '\r', '\n')
}

func (c *Conn) bulkBytes(b []byte) {
	c.head('$', len(b))
	c.out = append(append(c.out, b...), '\r', '\n')
}

// Write adds bytes to the output buffer, for protocols other than RESP.
func (c *Conn) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	return len(b), nil
}

// Flush sends the output buffer in one write.
func (c *Conn) Flush() error {
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// fill reads at least one more byte. It invalidates results of earlier reads.
func (c *Conn) fill() error {
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	if c.w == len(c.in) {
		c.in = append(c.in, make([]byte, len(c.in))...)
	}
	n, err := c.nc.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the server has closed the connection")
	}
	return err
}

// Line reads a line and returns it without its end. It is valid until the next read.
func (c *Conn) Line() ([]byte, error) {
	for looked := 0; ; {
		if i := bytes.IndexByte(c.in[c.r+looked:c.w], '\n'); i >= 0 {
			line := c.in[c.r : c.r+looked+i]
			c.r += looked + i + 1
			return bytes.TrimSuffix(line, []byte{'\r'}), nil
		}
		looked = c.w - c.r
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// Bytes reads n bytes and the line end after them, which it does not return. They are valid until the
// next read.
func (c *Conn) Bytes(n int) ([]byte, error) {
	for c.w-c.r < n+2 {
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
	b := c.in[c.r : c.r+n]
	c.r += n + 2
	return b, nil
}

// next reads the first line of a reply: its type and its number, which is -1 for nil. For an error reply
// it returns a RefusalError.
func (c *Conn) next() (kind byte, n int, err error) {
	line, err := c.Line()
	if err != nil {
		return 0, 0, err
	}
	if len(line) == 0 {
		return 0, 0, errors.New("an empty line is no reply")
	}
	switch kind = line[0]; kind {
	case '-':
		return kind, 0, RefusalError(line[1:])
	case '+':
		return kind, 0, nil
	case ':', '$', '*':
		n, ok := number(line[1:])
		if !ok {
			return 0, 0, fmt.Errorf("%q is no reply", line)
		}
		return kind, n, nil
	default:
		return 0, 0, fmt.Errorf("%q is no reply of RESP2", line)
	}
}

// number is strconv.Atoi for bytes.
func number(b []byte) (int, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	n := 0
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// list reads the header of an array and returns its length, 0 for nil.
func (c *Conn) list() (int, error) {
	kind, n, err := c.next()
	if err != nil {
		return 0, err
	}
	if kind != '*' && n >= 0 {
		return 0, fmt.Errorf("a reply of kind %q is no array", kind)
	}
	return max(n, 0), nil
}

// text reads a bulk string, which is valid until the next read.
func (c *Conn) text() ([]byte, error) {
	kind, n, err := c.next()
	if err != nil {
		return nil, err
	}
	if kind != '$' || n < 0 {
		return nil, fmt.Errorf("a reply of kind %q is no bulk string", kind)
	}
	return c.Bytes(n)
}

// integer reads an integer reply.
func (c *Conn) integer() (int, error) {
	kind, n, err := c.next()
	if err == nil && kind != ':' {
		err = fmt.Errorf("a reply of kind %q is no integer", kind)
	}
	return n, err
}

// skip reads and discards a value of any type.
func (c *Conn) skip() error {
	for left := 1; left > 0; left-- {
		kind, n, err := c.next()
		switch {
		case err != nil:
			return err
		case kind == '$' && n >= 0:
			if _, err := c.Bytes(n); err != nil {
				return err
			}
		case kind == '*':
			left += max(n, 0)
		}
	}
	return nil
}

// Reply reads the reply to one command, of any type: see Do.
func (c *Conn) Reply() (any, error) {
	line, err := c.Line()
	if err != nil {
		return nil, err
	}
	if len(line) == 0 {
		return nil, errors.New("an empty line is no reply")
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, RefusalError(rest)
	}
	n, ok := number([]byte(rest))
	switch {
	case !ok:
		return nil, fmt.Errorf("%q is no reply", line)
	case kind == ':':
		return int64(n), nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b, err := c.Bytes(n)
		return string(b), err
	case kind != '*':
		return nil, fmt.Errorf("a reply of kind %q is not of RESP2", kind)
	}
	list := make([]any, 0, min(n, 1024))
	for range n {
		v, err := c.Reply()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
