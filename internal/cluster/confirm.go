package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// Peer is a node and the address of its node port.
type Peer struct{ ID, Addr string }

// termAnswer is what a node answers to askTerm:
//
//	term 8 | newest entry of its log 8 | applied 8 | nanoseconds since 1970 8 |
//	newest version of entries that it reads 1 | newest format of its store that it reads 4
//
// Later versions may append to it.
type termAnswer struct {
	term, last, applied uint64
	clock               int64
	reads               replica.Versions
}

const termAnswerBytes = 4*8 + 1 + 4

func (a termAnswer) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, a.term)
	dst = binary.BigEndian.AppendUint64(dst, a.last)
	dst = binary.BigEndian.AppendUint64(dst, a.applied)
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.clock))
	return binary.BigEndian.AppendUint32(append(dst, a.reads.Entry), a.reads.Format)
}

func parseTermAnswer(b []byte) (a termAnswer, err error) {
	if len(b) < termAnswerBytes {
		return a, fmt.Errorf("an answer of %d bytes about the term", len(b))
	}
	return termAnswer{
		term: binary.BigEndian.Uint64(b), last: binary.BigEndian.Uint64(b[8:]), applied: binary.BigEndian.Uint64(b[16:]),
		clock: int64(binary.BigEndian.Uint64(b[24:])),
		reads: replica.Versions{Entry: b[32], Format: binary.BigEndian.Uint32(b[33:])},
	}, nil
}

// confirmer finds out whether this node still leads, for one leadership. It asks every voter which
// term it is in. A voter that is in this term has not voted for a later leader, so when it was
// asked, no other node could have been elected by it. If a majority, this node among it, is in
// this term after confirm was called, there was no other leader when it was called, and what this
// node had decided before was in force.
//
// Raft's own VerifyLeader does not tell this: it counts answers to heartbeats that were sent before
// it was called. A node that was stopped finds such answers in its sockets when it goes on.
//
// Each voter has one connection and at most one question under way. A question serves all calls
// that were waiting when it was sent. A voter that does not answer is asked again and again.
//
// At first no more voters are asked than a majority needs, one of three nodes' others: an answer costs
// some tens of microseconds of CPU at both ends. Without a majority after hedgeAfter, all are
// asked, and those that were late are asked last from then on, until they answer.
type confirmer struct {
	term   uint64
	self   string
	own    func() uint64                                            // the term that this node is in
	voters func() []Peer                                            // this node among them
	dial   func(ctx context.Context, addr string) (net.Conn, error) // for questions
	wait   time.Duration                                            // for an answer
	ctx    context.Context                                          //nolint:containedctx // the leadership, which its goroutines end with

	mu      sync.Mutex
	round   uint64            // counts the calls of confirm
	in      map[string]uint64 // by voter: the newest round after whose start it was in the term
	late    map[string]bool   // by voter: it has not answered within hedgeAfter
	askers  map[Peer]*asker
	deposed bool
	changed chan struct{} // closed when in or deposed have changed
	running sync.WaitGroup
}

// asker asks one voter.
type asker struct {
	voter Peer
	wake  chan struct{} // has room for one
}

// againAfter is the time between two attempts to ask a voter that does not answer.
const againAfter = 20 * time.Millisecond

// hedgeAfter is the time after which the voters are asked that need not be.
const hedgeAfter = 5 * time.Millisecond

func (c *confirmer) start(ctx context.Context) {
	c.ctx = ctx
	c.in, c.late, c.askers, c.changed = map[string]uint64{}, map[string]bool{}, map[Peer]*asker{}, make(chan struct{})
}

// confirm returns nil if no other node led when it was called. storage.ErrDeposed: another node may
// lead, or ctx or the leadership has ended. It waits for a majority as long as it takes.
func (c *confirmer) confirm(ctx context.Context) error {
	c.mu.Lock()
	c.round++
	round := c.round
	voters := c.voters()
	rest := c.askSome(voters)
	hedge := time.NewTimer(hedgeAfter)
	defer hedge.Stop()
	for !c.deposed && c.own() == c.term {
		if c.majority(voters, round) {
			c.mu.Unlock()
			// The own term comes last: this node votes, too.
			if c.own() == c.term {
				return nil
			}
			return fmt.Errorf("confirm: %w", storage.ErrDeposed)
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-hedge.C:
			c.askRest(voters, rest, round)
		case <-ctx.Done():
			return fmt.Errorf("confirm: %w: %w", storage.ErrDeposed, context.Cause(ctx))
		case <-c.ctx.Done():
			return fmt.Errorf("confirm: %w: %w", storage.ErrDeposed, context.Cause(c.ctx))
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
	return fmt.Errorf("confirm: %w", storage.ErrDeposed)
}

// askSome asks as many of the other voters as a majority needs, first those that are not late, and returns
// the others. The caller holds mu.
func (c *confirmer) askSome(voters []Peer) (rest []Peer) {
	need := len(voters) / 2
	for _, late := range []bool{false, true} {
		for _, v := range voters {
			switch {
			case v.ID == c.self || c.late[v.ID] != late:
			case need > 0:
				c.wakeUp(v)
				need--
			default:
				rest = append(rest, v)
			}
		}
	}
	return rest
}

// askRest asks the voters that askSome has left, and notes those that have not answered as late.
func (c *confirmer) askRest(voters, rest []Peer, round uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range voters {
		if v.ID != c.self && c.in[v.ID] < round && !slices.Contains(rest, v) {
			c.late[v.ID] = true
		}
	}
	for _, v := range rest {
		c.wakeUp(v)
	}
}

// majority reports whether enough voters were in the term after a round began.
func (c *confirmer) majority(voters []Peer, round uint64) bool {
	n := 0
	for _, v := range voters {
		if v.ID == c.self || c.in[v.ID] >= round {
			n++
		}
	}
	return n > len(voters)/2
}

// wakeUp has a voter asked. The caller holds mu.
func (c *confirmer) wakeUp(v Peer) {
	a := c.askers[v]
	if a == nil {
		a = &asker{voter: v, wake: make(chan struct{}, 1)}
		c.askers[v] = a
		c.running.Go(func() { c.run(a) })
	}
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
}

// run asks a voter until the leadership ends.
func (c *confirmer) run(a *asker) {
	var conn *askedConn
	end := func() {
		if conn != nil {
			conn.end()
			conn = nil
		}
	}
	defer end()
	var buf [64]byte
	for {
		select {
		case <-a.wake:
		case <-c.ctx.Done():
			return
		}
		for asked := false; !asked; {
			var err error
			if conn == nil {
				conn, err = c.connect(a.voter)
			}
			if err == nil {
				err = c.askOnce(conn, a.voter.ID, buf[:])
			}
			if asked = err == nil; asked {
				continue
			}
			end()
			select {
			case <-time.After(againAfter):
			case <-c.ctx.Done():
				return
			}
		}
	}
}

// askedConn is a connection to a voter, whose answers are read by one call of the system each.
type askedConn struct {
	net.Conn

	in   *bufio.Reader
	stop func() bool
}

// Read implements io.Reader.
func (c *askedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *askedConn) end() {
	c.stop()
	_ = c.Close() // nothing is lost with a question
}

// connect connects to a voter. The connection ends with the leadership.
func (c *confirmer) connect(v Peer) (*askedConn, error) {
	conn, err := c.dial(c.ctx, v.Addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return &askedConn{Conn: conn, in: bufio.NewReaderSize(conn, 256), stop: stop}, nil
}

// askOnce asks a voter and notes the answer.
func (c *confirmer) askOnce(conn net.Conn, voter string, buf []byte) error {
	asked := time.Now()
	if err := conn.SetDeadline(asked.Add(c.wait)); err != nil {
		return err
	}
	c.mu.Lock()
	round := c.round
	c.mu.Unlock()
	reply, err := askOn(conn, askTerm, nil, buf)
	if err != nil {
		return err
	}
	answer, err := parseTermAnswer(reply)
	if err != nil {
		return err
	}
	// The answer may have come while this process was stopped, and the deadline does not make sure
	// that it is refused then: it was in the socket before.
	if took := time.Since(asked); took > c.wait && answer.term == c.term {
		return fmt.Errorf("an answer about the term that took %v", took)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case answer.term == c.term:
		c.in[voter] = max(c.in[voter], round)
		delete(c.late, voter)
	case answer.term > c.term:
		c.deposed = true
	default: // it has not heard of this leader yet, and may still vote for another one
		return errors.New("an older term")
	}
	c.notify()
	return nil
}

// notify wakes the calls that wait. The caller holds mu.
func (c *confirmer) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// stop waits for the goroutines, after the leadership has ended.
func (c *confirmer) stop() { c.running.Wait() }
