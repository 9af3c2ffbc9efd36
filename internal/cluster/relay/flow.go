package relay

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"
)

// flow is what goes through one stream.
type flow struct {
	stream *streamConn
	to     *leader
	born   time.Time
	who    *Identity // of the last command

	out     [][]byte // not passed to the stream yet
	joined  bool     // the last of out is ours to append to
	total   int64    // bytes that were ever in out
	handed  int64    // of total, those passed to the stream
	pumping bool     // a goroutine writes
	ended   bool     // close the stream behind out

	sent     []*Command // without a reply, in order
	draining bool       // the leader refuses: nothing more is sent, and the stream ends with the last reply

	// Used by the reader of the stream only.
	scan  Scanner
	begun []byte   // of a reply that is not complete
	large *Command // whose reply is passed on in pieces
}

// identify sends the identity of the commands that follow to the leader. The caller holds mu.
func (f *flow) identify(who *Identity) {
	if f.who == who {
		return
	}
	f.who = who
	cmd := &Command{Wire: who.Wire, identity: true, start: f.total}
	f.write(cmd.Wire)
	f.sent = append(f.sent, cmd)
}

// add adds a command to what is sent. The caller holds mu.
func (f *flow) add(cmd *Command) {
	f.identify(cmd.Who)
	cmd.start, cmd.skip = f.total, cmd.Skip
	f.write(cmd.Wire)
	f.sent = append(f.sent, cmd)
}

// write adds bytes to what is sent: a copy, or as they are if they are many. The caller holds mu.
func (f *flow) write(b []byte) {
	f.total += int64(len(b))
	if len(b) > joinMax {
		f.out, f.joined = append(f.out, b), false
		return
	}
	if !f.joined {
		f.out, f.joined = append(f.out, nil), true
	}
	last := &f.out[len(f.out)-1]
	*last = append(*last, b...)
}

// begin reports whether the caller, which holds mu, has to pump.
func (f *flow) begin() bool {
	if f.pumping || len(f.out) == 0 {
		return false
	}
	f.pumping = true
	return true
}

// pump writes what is to be sent until nothing is left. After patience without progress it continues on
// a goroutine of its own; 0: it waits as long as it takes. Only one goroutine at a time pumps.
func (c *Conn) pump(f *flow, patience time.Duration) {
	for {
		c.mu.Lock()
		out := f.out
		f.out, f.joined = nil, false
		f.handed = f.total
		if len(out) == 0 {
			f.pumping = false
			ended := f.ended
			c.mu.Unlock()
			if ended {
				_ = f.stream.CloseWrite() // the leader notices that the client is gone
			}
			return
		}
		c.mu.Unlock()
		rest, err := f.stream.writeAll(out, patience)
		if len(rest) > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			go func() {
				if _, err := f.stream.writeAll(rest, 0); err != nil {
					f.fail()
				}
				c.pump(f, 0)
			}()
			return
		}
		if err != nil {
			f.fail()
		}
	}
}

// writeAll writes pieces, and returns those that were not written.
func (c *streamConn) writeAll(pieces [][]byte, patience time.Duration) ([][]byte, error) {
	var deadline time.Time
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	if err := c.SetWriteDeadline(deadline); err != nil {
		return pieces, err
	}
	for i, b := range pieces {
		if n, err := c.Write(b); err != nil {
			pieces[i] = b[n:]
			return pieces[i:], err
		}
	}
	return nil, nil
}

// fail ends the reader of a stream that cannot be written to.
func (f *flow) fail() { _ = f.stream.SetReadDeadline(time.Unix(1, 0)) }

// errDrained ends a stream whose leader refuses commands, after its last reply.
var errDrained = errors.New("the leader does not lead any more")

// refusedError ends a stream that the leader does not serve: it has too many clients, or does not know
// the user.
type refusedError struct{ reply []byte }

func (e *refusedError) Error() string {
	return "refused by the leader: " + string(bytes.TrimSpace(e.reply))
}

// receive reads replies until the stream ends.
func (c *Conn) receive(f *flow) error {
	small := make([]byte, readBytes)
	buf := small
	for {
		n, err := f.stream.Read(buf)
		if n > 0 {
			if err := c.feed(f, buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		switch {
		case n == len(buf) && len(buf) == readBytes:
			buf = make([]byte, readLarge)
		case n < readBytes:
			buf = small // the large one is not kept while nothing comes
		}
	}
}

// feed takes bytes of the stream, and wakes the client if they complete replies.
func (c *Conn) feed(f *flow, b []byte) error {
	defer func() {
		c.mu.Lock()
		wake := c.wakes()
		c.mu.Unlock()
		if wake {
			c.client.Wake()
		}
	}()
	now := time.Now()
	var kept []byte // b as far as it is kept: one copy for all replies in it
	for len(b) > 0 {
		n, done, err := f.scan.Next(b)
		if err != nil {
			return err
		}
		from, piece := b, b[:n]
		b = b[n:]
		if f.large != nil {
			f.large.parts.give(piece)
			if done {
				f.large.parts.end(false)
				f.large, f.scan.Note = nil, nil
			}
			continue
		}
		if !done {
			f.begun = append(f.begun, piece...)
			if len(f.begun) >= wholeMax {
				if err := c.divide(f, now); err != nil {
					return err
				}
			}
			continue
		}
		if len(f.begun) > 0 {
			piece = append(f.begun, piece...)
			f.begun = nil
		} else {
			if kept == nil {
				kept = bytes.Clone(from)
			}
			piece, kept = kept[:n:n], kept[n:]
		}
		if err := c.arrived(f, piece, now); err != nil {
			return err
		}
	}
	return nil
}

// arrived takes a complete reply.
func (c *Conn) arrived(f *flow, reply []byte, now time.Time) error {
	if reply[0] == '>' {
		if c.client.Push != nil {
			c.client.Push(reply)
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(f.sent) == 0 {
		return errFrame // it answers nothing
	}
	cmd := f.sent[0]
	if cmd.skip > 0 {
		cmd.skip--
		return nil
	}
	f.sent = f.sent[1:]
	switch {
	case cmd.identity:
		id, err := strconv.ParseUint(string(bytes.TrimSpace(reply[1:])), 10, 64)
		if reply[0] != ':' || err != nil {
			return &refusedError{reply}
		}
		c.remote.Store(id)
	case loading(reply) && !c.closed && c.later(cmd, f, now):
		cmd.refusal, f.draining = reply, true
	default:
		c.answer(cmd, reply, now)
		c.trim()
	}
	if f.draining && len(f.sent) == 0 {
		return errDrained
	}
	return nil
}

// divide begins to pass the reply under way on in pieces.
func (c *Conn) divide(f *flow, now time.Time) error {
	c.mu.Lock()
	if len(f.sent) == 0 || f.sent[0].identity || f.sent[0].skip > 0 || f.begun[0] == '>' {
		c.mu.Unlock()
		return errFrame // none of these is long
	}
	cmd := f.sent[0]
	f.sent = f.sent[1:]
	cmd.parts = newParts(f.begun, cmd.Lost)
	f.scan = Scanner{Note: cmd.Note}
	c.done(cmd, partial, now)
	c.trim()
	c.ready = false
	c.mu.Unlock()
	f.large = cmd
	_, _, err := f.scan.Next(f.begun)
	f.begun = nil
	c.client.Wake()
	return err
}
