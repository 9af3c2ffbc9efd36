package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// client is the common part of the RESP peers: an address, and the shape of the prepared queue.
type client struct {
	addr     string
	password string
	shape    Shape
	noise    Noise
}

// dial connects and authenticates.
func (c *client) dial(ctx context.Context) (*Conn, error) {
	conn, err := Dial(ctx, c.addr)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s (fila serve starts one): %w", c.addr, err)
	}
	if c.password == "" {
		return conn, nil
	}
	if _, err := conn.Do("AUTH", c.password); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// do executes commands one after the other and fails at the first error.
func (c *client) do(ctx context.Context, commands ...[]string) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all replies have been read
	for _, words := range commands {
		if _, err := conn.Do(words...); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(words[:min(3, len(words))], " "), err)
		}
	}
	return nil
}

// server returns the fields of INFO by name.
func (c *client) server(ctx context.Context) (map[string]string, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	reply, err := conn.Do("INFO", "server")
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	text, _ := reply.(string)
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts, nil
}

// blockMillis is the BLOCK of a lease before it is repeated: long enough to cost little, and short
// enough to notice the end of the load.
const blockMillis = 1000

// words encodes the commands of a server. Each session has its own.
type words interface {
	enqueue(c *Conn, payload []byte)
	lease(c *Conn, n int) // waits for blockMillis
	// deliveries reads the reply to a lease and calls each for every message. Arguments are valid
	// during the call only.
	deliveries(c *Conn, each func(receipt, payload []byte)) error
	ack(c *Conn, receipts [][]byte)
	acked(c *Conn, want int) error // reads the reply to ack
}

// session is a connection to a RESP peer.
type session struct {
	*Conn
	words words
	size  int
	noise Noise
	at    uint64 // number of the next payload
	buf   []byte // for a payload with a timestamp

	taken [][]byte // receipts to be acked; their memory is reused
}

func newSession(conn *Conn, c *client, w words) *session {
	return &session{Conn: conn, words: w, size: c.shape.Payload, noise: c.noise, at: rand.Uint64()}
}

func (s *session) Enqueue(n int) error { return s.enqueue(n, 0) }

// enqueue sends n messages, with a timestamp in their payloads unless it is zero.
func (s *session) enqueue(n int, at time.Duration) error {
	for range n {
		s.at++
		p := s.noise.Payload(s.at, s.size)
		if at != 0 {
			s.buf = append(s.buf[:0], p...)
			stamp(s.buf, at)
			p = s.buf
		}
		s.words.enqueue(s.Conn, p)
	}
	if err := s.Flush(); err != nil {
		return err
	}
	for range n {
		if _, err := s.text(); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) Lease(n int) error {
	for len(s.taken) < n {
		s.words.lease(s.Conn, n-len(s.taken))
		if err := s.Flush(); err != nil {
			return err
		}
		if err := s.deliveries(nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) deliveries(seen func(payload []byte)) error {
	return s.words.deliveries(s.Conn, func(receipt, payload []byte) {
		s.take(receipt)
		if seen != nil {
			seen(payload)
		}
	})
}

// take stores a receipt to be acked.
func (s *session) take(receipt []byte) {
	n := len(s.taken)
	if n < cap(s.taken) {
		s.taken = s.taken[:n+1]
	} else {
		s.taken = append(s.taken, nil)
	}
	s.taken[n] = append(s.taken[n][:0], receipt...)
}

func (s *session) Ack() error {
	n := len(s.taken)
	s.words.ack(s.Conn, s.taken)
	s.taken = s.taken[:0]
	if err := s.Flush(); err != nil {
		return err
	}
	return s.words.acked(s.Conn, n)
}

// consume acks the messages it has leased before and, in the same write, leases up to n messages and
// waits for them. It returns their number.
func (s *session) consume(n int, seen func(payload []byte)) (int, error) {
	acks := len(s.taken)
	if acks > 0 {
		s.words.ack(s.Conn, s.taken)
		s.taken = s.taken[:0]
	}
	s.words.lease(s.Conn, n)
	if err := s.Flush(); err != nil {
		return 0, err
	}
	if acks > 0 {
		if err := s.words.acked(s.Conn, acks); err != nil {
			return 0, err
		}
	}
	err := s.deliveries(seen)
	return len(s.taken), err
}

// wantCount reads an integer reply and checks its value.
func wantCount(c *Conn, want int, what string) error {
	n, err := c.integer()
	if err == nil && n != want {
		err = fmt.Errorf("of %d messages %d were %s", want, n, what)
	}
	return err
}
