package relay

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	wholeMax  = 64 << 10 // a longer reply is passed on in pieces
	readBytes = 2 << 10  // what a stream that waits has for a buffer
	readLarge = 64 << 10 // and one that has much to read
	joinMax   = 32 << 10 // commands up to this size are written together
	writeTime = 20 * time.Millisecond
)

// Client is the client of a Conn. Its functions are called from goroutines of the relay and must not
// block.
type Client struct {
	Addr   string
	Wake   func()             // some commands are ready
	Push   func(frame []byte) // a push has arrived; nil: none is expected
	Joined func()             // a connection that is kept (Conn.Keep) was lost and is there again; nil: nothing is called
}

// Conn is the connection of a client to the leader, which may change. It opens a stream when the first
// command is sent. Its methods may be called from any goroutine; none blocks for longer than a moment.
type Conn struct {
	router *Router
	client Client

	remote atomic.Uint64 // id of the connection at the leader; 0: there was none
	unread atomic.Int32  // commands without a reply

	mu      sync.Mutex
	started bool
	closed  bool
	queue   []*Command // without a reply, in order; those in between may have theirs
	flow    *flow      // nil: not connected
	keep    *Identity  // stay connected as this one; nil: not needed
	kept    bool       // it was connected since keep was set
	news    chan struct{}
	ready   bool // commands have become ready since the last Wake
}

// Open returns a connection for a client. Nothing is opened before a command is sent.
func (r *Router) Open(c Client) *Conn {
	return &Conn{router: r, client: c, news: make(chan struct{}, 1)}
}

// Busy reports whether commands are without a reply.
func (c *Conn) Busy() bool { return c.unread.Load() > 0 }

// Unanswered returns the number of commands without a reply.
func (c *Conn) Unanswered() int { return int(c.unread.Load()) }

// Waits reports whether the first command without a reply is one that may wait at the leader
// (Command.Rest).
func (c *Conn) Waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0 && c.queue[0].Rest != nil
}

// ID returns the id of the connection at the leader, 0 if it had none yet.
func (c *Conn) ID() uint64 { return c.remote.Load() }

// Send sends commands, or keeps them until there is a leader. It does not wait for the leader for
// longer than a moment: what the stream does not take is written later.
func (c *Conn) Send(commands []*Command) {
	to := c.router.leader()
	c.mu.Lock()
	f := c.flow
	if f != nil && !f.draining && f.to != to {
		// An earlier leader refuses what it is sent, or it is not there any more.
		f.draining = true
		if len(f.sent) == 0 {
			f.fail()
		}
	}
	for _, cmd := range commands {
		c.unread.Add(1)
		if c.closed {
			c.answer(cmd, nil, time.Time{})
			continue
		}
		if len(c.queue) == 0 {
			cmd.began = time.Now()
		}
		c.queue = append(c.queue, cmd)
		if f != nil && !f.draining {
			f.add(cmd)
		} else {
			cmd.deadline = time.Now().Add(c.router.cfg.Wait)
		}
	}
	c.start()
	pump := f != nil && f.begin()
	wake := c.wakes()
	c.mu.Unlock()
	c.nudge()
	if pump {
		c.pump(f, writeTime)
	}
	if wake {
		c.client.Wake()
	}
}

// Keep stays connected with the leader as who, as long as it is another node. nil ends that.
func (c *Conn) Keep(who *Identity) {
	c.mu.Lock()
	c.keep = who
	f := c.flow
	if f != nil && !f.draining && who != nil {
		f.identify(who)
	}
	if who == nil {
		c.kept = false
	} else {
		c.start()
	}
	pump := f != nil && f.begin()
	c.mu.Unlock()
	c.nudge()
	if pump {
		go c.pump(f, 0)
	}
}

// Close says that the client is gone. Its commands without a reply become ready: at once, or as the
// leader answers them.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	f := c.flow
	pump := false
	if f != nil {
		f.ended = true
		pump = !f.pumping
		f.pumping = true
	}
	c.mu.Unlock()
	if pump {
		go c.pump(f, 0)
	}
	c.nudge()
}

// start starts the goroutine of the connection. The caller holds mu.
func (c *Conn) start() {
	if !c.started && !c.closed {
		c.started = true
		go c.run()
	}
}

func (c *Conn) nudge() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// wakes reports whether the client has to be woken. The caller holds mu.
func (c *Conn) wakes() bool {
	ready := c.ready
	c.ready = false
	return ready
}

// run connects to one leader after the other until the client is gone.
func (c *Conn) run() {
	var pause time.Time
	for {
		f := c.connect(pause)
		if f == nil {
			return
		}
		err := c.receive(f)
		_ = f.stream.Close() // it is broken, or its last reply has come
		now := time.Now()
		pause = time.Time{}
		if (errors.Is(err, errDrained) || now.Sub(f.born) < againAfter) && c.router.leader() == f.to {
			pause = now.Add(againAfter)
		}
		c.broke(f, err, now)
	}
}

// connect opens a stream to the leader and sends everything that has no reply. It waits until there is
// something to send and a leader, and refuses commands whose time is over. It returns nil when the
// client is gone. Before pause, it does not try the leader that it knows at first.
func (c *Conn) connect(pause time.Time) *flow {
	tried := c.router.leader()
	for {
		to := c.router.leader()
		if to != tried {
			tried, pause = to, time.Time{}
		}
		now := time.Now()
		idle, until, closed := c.pending(to, now)
		if closed {
			return nil
		}
		if !idle && to.known && !now.Before(pause) {
			stream, err := c.router.open(to)
			if err == nil {
				if f := c.begin(stream, to); f != nil {
					return f
				}
				continue
			}
			c.router.cfg.Log.Debug().Err(err).Str("node", to.node).Msg("no stream to the leader")
			pause = time.Now().Add(againAfter)
		}
		if !idle && to.known && (until.IsZero() || pause.Before(until)) {
			until = pause
		}
		c.await(to, until)
	}
}

// pending refuses commands whose time is over. It reports whether there is nothing to send, when the
// next command is to be refused (zero: none is), and whether the client is gone.
func (c *Conn) pending(to *leader, now time.Time) (idle bool, until time.Time, closed bool) {
	c.mu.Lock()
	for _, cmd := range c.queue {
		switch {
		case cmd.Ready():
		case c.closed:
			c.answer(cmd, nil, now)
		case !cmd.deadline.IsZero() && !now.Before(cmd.deadline):
			refusal := cmd.refusal
			if refusal == nil {
				refusal = noLeader()
			}
			c.answer(cmd, refusal, now)
		case !cmd.deadline.IsZero() && (until.IsZero() || cmd.deadline.Before(until)):
			until = cmd.deadline
		}
	}
	c.trim()
	idle = len(c.queue) == 0 && (c.keep == nil || to.self)
	closed = c.closed
	wake := c.wakes()
	c.mu.Unlock()
	if wake {
		c.client.Wake()
	}
	return idle, until, closed
}

// await waits for another leader, for news of the client, or for a time.
func (c *Conn) await(to *leader, until time.Time) {
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-to.over:
	case <-timeout:
	case <-c.news:
	}
}

// begin sends everything that has no reply on a new stream; nil if the client is gone.
func (c *Conn) begin(stream *streamConn, to *leader) *flow {
	f := &flow{stream: stream, to: to, born: time.Now(), pumping: true}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		_ = stream.Close() // nothing was sent
		return nil
	}
	f.write(preface(c.client.Addr))
	if c.keep != nil {
		f.identify(c.keep)
	}
	for i, cmd := range c.queue {
		switch {
		case cmd.Ready():
			continue
		case cmd.waits && cmd.Rest != nil:
			cmd.Wire = cmd.Rest(f.born.Sub(cmd.began))
		case i == 0:
			cmd.began = f.born
		}
		f.add(cmd)
	}
	c.flow = f
	again := c.kept
	c.kept = c.keep != nil
	c.mu.Unlock()
	go c.pump(f, 0) // not here: the replies to what is sent must be read meanwhile
	if again && c.client.Joined != nil {
		c.client.Joined()
	}
	return f
}

// later decides whether a command without effect is sent again, and until when. A stream that has lived
// for long is no part of the same failure. The caller holds mu.
func (c *Conn) later(cmd *Command, f *flow, now time.Time) bool {
	wait := c.router.cfg.Wait
	if cmd.deadline.IsZero() || now.Sub(f.born) >= wait {
		cmd.deadline = now.Add(wait)
	}
	return now.Before(cmd.deadline)
}

// answer completes a command. The caller holds mu, and calls trim.
func (c *Conn) answer(cmd *Command, reply []byte, now time.Time) {
	cmd.body = reply
	c.done(cmd, whole, now)
}

func (c *Conn) done(cmd *Command, state uint32, now time.Time) {
	if !cmd.began.IsZero() {
		cmd.took = now.Sub(cmd.began)
	}
	cmd.state.Store(state)
	c.unread.Add(-1)
	c.ready = true
	if len(c.queue) > 1 && c.queue[0] == cmd {
		c.queue[1].began = now
	}
}

// trim removes commands that have their replies from the queue. The caller holds mu.
func (c *Conn) trim() {
	n := 0
	for n < len(c.queue) && c.queue[n].Ready() {
		c.queue[n] = nil
		n++
	}
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
}

// broke decides what becomes of the commands that a stream has left without a reply.
func (c *Conn) broke(f *flow, err error, now time.Time) {
	if f.large != nil {
		f.large.parts.end(true)
	}
	answered := f.stream.answered()
	c.mu.Lock()
	c.flow = nil
	refused, _ := errors.AsType[*refusedError](err)
	first := true
	for _, cmd := range f.sent {
		switch {
		case cmd.identity:
			continue
		case refused != nil:
			c.answer(cmd, refused.reply, now)
		case c.closed:
			c.answer(cmd, nil, now)
		case cmd.Again == Never && cmd.start < f.handed && !answered:
			c.answer(cmd, unknown(), now)
		default:
			c.later(cmd, f, now)
			cmd.waits = cmd.waits || first
		}
		first = false
	}
	c.trim()
	wake := c.wakes()
	c.mu.Unlock()
	if wake {
		c.client.Wake()
	}
}
