package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	dialTime   = time.Second            // for a link
	againAfter = 20 * time.Millisecond  // between two attempts with the same leader
	linkGrace  = 250 * time.Millisecond // for replies of an earlier leader that are on their way
	lostGrace  = time.Second            // for a leader that is lost to be known again, as it is after a moment of silence
)

// Config configures a Router.
type Config struct {
	// Dial opens a connection for a link to another node.
	Dial func(ctx context.Context, node string) (net.Conn, error)
	// Serve serves a stream, as in Serve: this node leads, and a client has commands left that an
	// earlier leader has not answered. It closes the connection.
	Serve func(net.Conn)
	// Wait is how long a command waits for a leader (cluster.wait_ms).
	Wait time.Duration
	Log  zerolog.Logger
}

// Router knows the leader, and has the link to it. Its methods may be called from any goroutine.
type Router struct {
	cfg Config

	mu     sync.Mutex
	now    *leader
	before *leader              // the last one that was known, which the next one may be again; nil: none
	ending map[*leader]struct{} // earlier ones, whose links end in a moment
	closed chan struct{}
}

// leader is one leadership as the router knows it.
type leader struct {
	known bool   // false: no node leads, as far as is known
	self  bool   // this node leads
	node  string // the node that leads, if it is another
	over  chan struct{}

	mu   sync.Mutex // held while a link is opened
	link *session
}

// NewRouter returns a router that knows no leader.
func NewRouter(cfg Config) *Router {
	return &Router{cfg: cfg, now: &leader{over: make(chan struct{})}, closed: make(chan struct{}), ending: map[*leader]struct{}{}}
}

// Follow says that another node leads.
func (r *Router) Follow(node string) { r.change(&leader{known: true, node: node}) }

// Lead says that this node leads: commands that wait for a leader are served here.
func (r *Router) Lead() { r.change(&leader{known: true, self: true}) }

// Lose says that no leader is known. What an earlier one still answers is taken for a moment: then its link
// ends, and with it the commands under way, since a leader that is no longer heard may never answer them.
func (r *Router) Lose() { r.change(&leader{}) }

// Close ends all links for good. Commands that wait are refused when their time is over. It is called
// once.
func (r *Router) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.closed)
	for l := range r.ending {
		l.end()
	}
	r.now.end()
	if r.before != nil {
		r.before.end()
	}
}

func (r *Router) change(to *leader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.now
	if to.known && old.known && old.self == to.self && old.node == to.node {
		return
	}
	if old.known {
		r.before = old
	}
	if b := r.before; to.known && b != nil {
		if b.self == to.self && b.node == to.node {
			b.mu.Lock()
			to.link = b.link
			b.mu.Unlock()
		} else {
			r.ending[b] = struct{}{}
			time.AfterFunc(linkGrace, func() { r.forget(b) })
		}
		r.before = nil
	}
	if old.known && !to.known {
		time.AfterFunc(lostGrace, func() { r.giveUp(old) })
	}
	to.over = make(chan struct{})
	r.now = to
	close(old.over)
}

// giveUp ends the link of the last leader, unless another one is known since, or it is again.
func (r *Router) giveUp(lost *leader) {
	r.mu.Lock()
	given := r.before == lost
	if given {
		r.before, r.ending[lost] = nil, struct{}{}
	}
	r.mu.Unlock()
	if given {
		r.forget(lost)
	}
}

// forget ends the link of an earlier leader.
func (r *Router) forget(l *leader) {
	l.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ending, l)
}

// leader returns the current one.
func (r *Router) leader() *leader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// end closes the link of a leader that has been replaced.
func (l *leader) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil {
		l.link.close()
	}
}

var errNoLeader = errors.New("no node of the cluster leads")

// open opens a stream to a leader.
func (r *Router) open(l *leader) (*streamConn, error) {
	link, err := r.linkTo(l)
	if err != nil {
		return nil, err
	}
	st, err := link.open()
	if err != nil {
		return nil, err
	}
	return &streamConn{stream: st}, nil
}

// linkTo returns the link to a leader, and opens it if there is none.
func (r *Router) linkTo(l *leader) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil && !l.link.ended() {
		return l.link, nil
	}
	select {
	case <-l.over:
		return nil, errNoLeader
	case <-r.closed:
		return nil, errNoLeader
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) { return r.cfg.Dial(ctx, l.node) }
	if l.self {
		dial = r.dialSelf
	}
	nc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	l.link = newSession(nc, nil)
	return l.link, nil
}

// dialSelf opens a link within this process.
func (r *Router) dialSelf(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		if err := Serve(far, nil, r.cfg.Serve, r.cfg.Log); err != nil {
			r.cfg.Log.Warn().Err(err).Msg("the link of this node to itself")
		}
	}()
	return near, nil
}
