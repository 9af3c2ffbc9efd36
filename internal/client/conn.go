package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrClosed says that the broker has ended the connection.
var ErrClosed = errors.New("the broker has closed the connection")

// RefusalError is an error that the broker has answered.
type RefusalError struct {
	Code string // NOQUEUE, WRONGPASS, ...: the first word
	Text string // what follows it
}

// Error is the reply as it was sent.
func (e RefusalError) Error() string {
	if e.Text == "" {
		return e.Code
	}
	return e.Code + " " + e.Text
}

// Refused says whether the error is a refusal by the broker with one of the codes, or with any
// if none is given.
func Refused(err error, codes ...string) bool {
	refusal, ok := errors.AsType[RefusalError](err)
	return ok && (len(codes) == 0 || slices.Contains(codes, refusal.Code))
}

// Options say as which user a connection is opened. The zero value is the default user without
// a password, without TLS.
type Options struct {
	TLS      *tls.Config // nil: without TLS
	User     string      // empty: default
	Password string      // with neither a user nor a password, the connection does not authenticate
	Name     string      // what CLIENT LIST shows; empty: nothing

	// DialTimeout bounds connecting, the TLS handshake and authentication together; 0: 5 s.
	DialTimeout time.Duration
	// ReplyBytesMax bounds the memory of one reply; 0: 256 MiB.
	ReplyBytesMax int64
	// Push takes the push messages that arrive while a command waits for its reply, on the
	// goroutine of that call; nil: they are dropped.
	Push func(push []any)
}

const (
	dialTimeout   = 5 * time.Second
	replyBytesMax = 256 << 20
)

// Conn is a connection. It is not safe for concurrent use, but for Close.
type Conn struct {
	nc     net.Conn
	in     reader
	out    []byte
	push   func([]any)
	hello  Map
	broken error // why the connection is of no more use
}

// Dial connects to a TCP address and speaks RESP3 there, see [New].
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	timeout := o.DialTimeout
	if timeout == 0 {
		timeout = dialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if o.TLS != nil {
		secure := tls.Client(nc, o.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, nc.Close())
		}
		nc = secure
	}
	return New(ctx, nc, o)
}

// New speaks RESP3 on a connection that is open already: it sends HELLO 3, with the user and
// password of the options if there are any. It ignores TLS and DialTimeout. The connection is
// closed if the broker refuses.
func New(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	c := &Conn{nc: nc, push: o.Push, in: reader{r: bufio.NewReaderSize(nc, 16<<10), bytesMax: o.ReplyBytesMax}}
	if c.in.bytesMax == 0 {
		c.in.bytesMax = replyBytesMax
	}
	hello := []string{"HELLO", "3"}
	if o.User != "" || o.Password != "" {
		user := o.User
		if user == "" {
			user = "default"
		}
		hello = append(hello, "AUTH", user, o.Password)
	}
	if o.Name != "" {
		hello = append(hello, "SETNAME", o.Name)
	}
	reply, err := c.Do(ctx, hello...)
	if err == nil {
		if m, ok := reply.(Map); ok {
			c.hello = m
			return c, nil
		}
		err = errors.New("the server does not speak RESP3: HELLO 3 was not answered with a map")
	}
	if Refused(err, "NOAUTH") { // HELLO's own text explains HELLO AUTH, which callers do not see
		err = RefusalError{Code: "NOAUTH", Text: "Authentication required."}
	}
	return nil, errors.Join(err, nc.Close())
}

// Hello returns the broker's reply to HELLO: server, version, id and so on.
func (c *Conn) Hello() Map { return c.hello }

// Certificates are those that the broker has shown, its own first; none without TLS.
func (c *Conn) Certificates() []*x509.Certificate {
	if secure, ok := c.nc.(*tls.Conn); ok {
		return secure.ConnectionState().PeerCertificates
	}
	return nil
}

// Close ends the connection. A call that waits in another goroutine returns an error.
func (c *Conn) Close() error { return c.nc.Close() }

// Err says why the connection is of no more use, nil while it is of use.
func (c *Conn) Err() error { return c.broken }

// Do sends one command and returns its reply. When ctx ends first, the command may have been
// executed or not, and the connection is of no more use. A command that subscribes has no reply:
// see [Conn.Subscribe].
func (c *Conn) Do(ctx context.Context, args ...string) (any, error) {
	var reply any
	err := c.during(ctx, func() error {
		if err := c.send(args); err != nil {
			return err
		}
		var err error
		reply, err = c.reply()
		return err
	})
	return reply, err
}

// Pipeline sends commands together and returns the replies of all, in order, where a
// RefusalError is the reply of a command that was refused. A broker stops reading commands while
// replies are not read, so the commands of a call should be some hundreds at most.
func (c *Conn) Pipeline(ctx context.Context, commands ...[]string) ([]any, error) {
	replies := make([]any, 0, len(commands))
	err := c.during(ctx, func() error {
		if err := c.send(commands...); err != nil {
			return err
		}
		for range commands {
			reply, err := c.reply()
			if refusal, refused := errors.AsType[RefusalError](err); refused {
				reply, err = refusal, nil
			}
			if err != nil {
				return err
			}
			replies = append(replies, reply)
		}
		return nil
	})
	return replies, err
}

// Subscribe sends SUBSCRIBE or PSUBSCRIBE, and returns when all channels are confirmed: events
// of commands that are sent after that will come.
func (c *Conn) Subscribe(ctx context.Context, command string, channels ...string) error {
	return c.during(ctx, func() error {
		if err := c.send(append([]string{command}, channels...)); err != nil {
			return err
		}
		for confirmed := 0; confirmed < len(channels); {
			push, v, err := c.in.frame()
			switch {
			case err != nil:
				return err
			case !push:
				return fmt.Errorf("%s was answered with %T and not with a confirmation", command, v)
			}
			if list, _ := v.([]any); len(list) > 0 && strings.EqualFold(Text(list[0]), command) {
				confirmed++
			} else if c.push != nil {
				c.push(list)
			}
		}
		return nil
	})
}

// Next waits for a push message, such as "message", channel, payload.
func (c *Conn) Next(ctx context.Context) ([]any, error) {
	var list []any
	err := c.during(ctx, func() error {
		push, v, err := c.in.frame()
		if err == nil && !push {
			err = errors.New("a reply came where a push message was awaited")
		}
		list, _ = v.([]any)
		return err
	})
	return list, err
}

// during makes f end with ctx. After an error that is no refusal the connection is of no more
// use: what it would read next belongs to no command.
func (c *Conn) during(ctx context.Context, f func() error) error {
	if c.broken != nil {
		return c.broken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	end, _ := ctx.Deadline() // the zero time is none
	err := c.nc.SetDeadline(end)
	if err == nil {
		cut := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(cut)
			_ = c.nc.SetDeadline(time.Unix(1, 0)) // on a closed connection f has ended
		})
		err = f()
		if !stop() {
			<-cut // or it would cut the next command
		}
	}
	if err == nil || Refused(err) {
		return err
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded): // a moment before ctx
		err = context.DeadlineExceeded
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = ErrClosed
	}
	c.broken = err
	return err
}

// send writes commands in one write.
func (c *Conn) send(commands ...[]string) error {
	c.out = c.out[:0]
	for _, args := range commands {
		c.out = appendCommand(c.out, args)
	}
	_, err := c.nc.Write(c.out)
	if cap(c.out) > 1<<20 {
		c.out = nil
	}
	return err
}

func appendCommand(b []byte, args []string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, a := range args {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(a)), 10), "\r\n"...)
		b = append(append(b, a...), "\r\n"...)
	}
	return b
}

// reply reads the next frame that is no push.
func (c *Conn) reply() (any, error) {
	for {
		push, v, err := c.in.frame()
		if err != nil || !push {
			return v, err
		}
		if list, ok := v.([]any); ok && c.push != nil {
			c.push(list)
		}
	}
}
