package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// rejectTime bounds the write of the error to a surplus connection. A new socket has
	// buffer space for it, so this normally takes no time.
	rejectTime     = 10 * time.Millisecond
	httpWarnEvery  = time.Minute
	tooManyClients = "-ERR max number of clients reached\r\n"
	onlyTLS        = "-ERR this port takes TLS only\r\n"
	userTimeout    = 30 * time.Second // a peer is dead if bytes stay unacknowledged for this long
)

// Server accepts connections and keeps the register of them. Its methods are safe for
// concurrent use.
type Server struct {
	cfg     Config
	handler Handler
	pools   pools
	replies *Budget // memory for replies of all connections
	stats   counters

	unauthenticated unauthenticatedList
	unackedMin      time.Duration

	mu        sync.Mutex
	listeners []listener       // in the order of Config.listeners; empty before Listen
	conns     map[uint64]*Conn // including those whose session is not open yet
	local     int              // of conns, those of ServeLocal
	lastID    uint64
	stopping  chan struct{} // closed by Shutdown, or at the end of Serve's context
	empty     chan struct{} // closed when stopping and the last connection has ended
}

// counters are the figures of Stats.
type counters struct {
	accepted, rejected, commands, bytesIn, bytesOut atomic.Uint64

	httpWarned atomic.Int64 // Unix nanoseconds
}

// Stats are counts since the creation of the server, and the current number of
// connections.
type Stats struct {
	Accepted, Rejected uint64 // connections; rejected ones were over MaxClients
	Current            int
	Commands           uint64 // read
	BytesIn, BytesOut  uint64
}

// NewServer validates cfg. It opens no port.
func NewServer(cfg Config, h Handler) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, fmt.Errorf("%w: no handler", ErrConfig)
	}
	return &Server{
		cfg:      cfg,
		pools:    pools{receivedMax: cfg.InputBytesMax},
		replies:  NewBudget(cfg.ReplyBytesMax),
		handler:  h,
		conns:    map[uint64]*Conn{},
		stopping: make(chan struct{}),
		empty:    make(chan struct{}),

		unackedMin: unackedMin,
	}, nil
}

// ServeConn serves one connection and closes it before it returns. Serve does the same
// for each connection that a listener of the mode has accepted.
func (s *Server) ServeConn(nc net.Conn, mode Mode) {
	c := s.admit(nc)
	if c == nil {
		s.reject(nc)
		return
	}
	c.mode = mode
	s.serve(c)
}

// ServeLocal serves a connection that another part of this process has made, as ServeConn
// does: with the same handler, register and shutdown. The caller bounds the number and the
// lifetime of such connections, so neither MaxClients nor IdleTimeout applies to them: an
// operator gets in when clients have taken every place.
//
// user is the user that the caller has authenticated, see Conn.LocalUser; empty: the
// client of the connection authenticates as any other does.
func (s *Server) ServeLocal(nc net.Conn, user string) {
	c := s.admitLocal(nc, user)
	if c == nil {
		_ = nc.Close() // nothing was written
		return
	}
	s.serve(c)
}

// ServeRelayed serves a connection on which another node passes on the commands of a client, as
// ServeConn does. The other node applies IdleTimeout to its client, so it does not apply here.
func (s *Server) ServeRelayed(nc net.Conn) {
	c := s.admit(nc)
	if c == nil {
		s.refuse(nc)
		endRelayed(nc)
		_ = nc.Close() // nothing was written, or the refusal
		return
	}
	c.relayed = true
	s.serve(c)
}

// serve serves an admitted connection.
func (s *Server) serve(c *Conn) {
	defer s.remove(c)
	defer s.unauthenticated.remove(c)
	if t, ok := c.nc.(*tls.Conn); ok && !c.shakeHands(t) {
		c.closeSocket()
		return
	}
	c.run(s.handler)
}

// shakeHands performs the TLS handshake. A plaintext client gets an error in plain text.
func (c *Conn) shakeHands(t *tls.Conn) bool {
	c.markAuthenticated(false)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	err := t.HandshakeContext(ctx)
	if err == nil {
		return true
	}
	if not, ok := errors.AsType[tls.RecordHeaderError](err); ok && not.Conn != nil {
		if not.Conn.SetWriteDeadline(time.Now().Add(rejectTime)) == nil {
			_, _ = not.Conn.Write([]byte(onlyTLS)) // best effort
		}
	}
	c.server.cfg.Log.Debug().Str("addr", c.RemoteAddr().String()).Err(err).Msg("no TLS with a client")
	return false
}

// admit registers a connection unless MaxClients is reached.
func (s *Server) admit(nc net.Conn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStopping() || len(s.conns)-s.local >= s.cfg.MaxClients {
		return nil
	}
	return s.register(nc)
}

// admitLocal registers a connection of ServeLocal unless the server stops.
func (s *Server) admitLocal(nc net.Conn, user string) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStopping() {
		return nil
	}
	c := s.register(nc)
	c.local, c.localUser = true, user
	s.local++
	return c
}

// register adds a connection to the register. The caller holds mu.
func (s *Server) register(nc net.Conn) *Conn {
	s.lastID++
	c := newConn(s.lastID, nc, s)
	s.conns[c.id] = c
	s.stats.accepted.Add(1)
	return c
}

// reject closes a connection that is not admitted, with a word.
func (s *Server) reject(nc net.Conn) {
	s.refuse(nc)
	_ = nc.Close() // nothing was written, or the refusal
}

// refuse sends Redis' error for too many clients, best effort, as Redis does; not with
// TLS, before the handshake.
func (s *Server) refuse(nc net.Conn) {
	if s.isStopping() {
		return
	}
	s.stats.rejected.Add(1)
	if _, ok := nc.(*tls.Conn); !ok && nc.SetWriteDeadline(time.Now().Add(rejectTime)) == nil {
		_, _ = nc.Write([]byte(tooManyClients))
	}
}

// endRelayed tells another node, before a connection of it is closed, that what was read of it is answered. What it has
// sent beyond that may be executed elsewhere. An error is that of the close.
func endRelayed(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// remove removes an ended connection from the register.
func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if c.local {
		s.local--
	}
	s.checkEmpty()
}

// checkEmpty closes empty when the last connection has ended. The caller holds mu.
func (s *Server) checkEmpty() {
	if !s.isStopping() || len(s.conns) > 0 {
		return
	}
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// Shutdown stops accepting and reading, waits until the pending replies of each
// connection are written, and closes it. Sessions are notified by Gone, which should end
// their blocked commands. When ctx ends first, the remaining connections are closed at
// once and ctx's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.halt() {
		c.stopReading()
	}
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
	}
	s.closeAll()
	return fmt.Errorf("closing connections with replies pending: %w", ctx.Err())
}

// closeAll stops accepting and closes all connections at once.
func (s *Server) closeAll() {
	for _, c := range s.halt() {
		c.Close()
	}
}

// halt stops accepting for good and returns the current connections.
func (s *Server) halt() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isStopping() {
		close(s.stopping)
	}
	for _, l := range s.listeners {
		_ = l.Close() // closed before, or not recoverable
	}
	s.checkEmpty()
	conns := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// Conns returns the connections that have a session, oldest first.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	conns := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		if c.opened.Load() {
			conns = append(conns, c)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(conns, func(a, b *Conn) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return conns
}

// Conn returns the connection with a number, or nil.
func (s *Server) Conn(id uint64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[id]; c != nil && c.opened.Load() {
		return c
	}
	return nil
}

// Kill closes a connection at once and reports whether it existed.
func (s *Server) Kill(id uint64) bool {
	c := s.Conn(id)
	if c == nil {
		return false
	}
	c.Close()
	return true
}

// ReservedBytes returns the memory reserved for replies by all connections, without their
// allowances.
func (s *Server) ReservedBytes() int64 { return s.replies.Used() }

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	current := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Accepted: s.stats.accepted.Load(),
		Rejected: s.stats.rejected.Load(),
		Current:  current,
		Commands: s.stats.commands.Load(),
		BytesIn:  s.stats.bytesIn.Load(),
		BytesOut: s.stats.bytesOut.Load(),
	}
}

// warnHTTP logs an attack through HTTP at most once a minute, so that the log cannot be
// flooded.
func (s *Server) warnHTTP(c *Conn) {
	now := time.Now().UnixNano()
	last := s.stats.httpWarned.Load()
	if last != 0 && now-last < int64(httpWarnEvery) || !s.stats.httpWarned.CompareAndSwap(last, now) {
		return
	}
	s.cfg.Log.Warn().Str("addr", c.RemoteAddr().String()).Err(errHTTP).Msg("closing a client")
}
