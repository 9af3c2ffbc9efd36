package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/faisca/fila/internal/client"
)

// Names of connections, for CLIENT LIST.
const (
	requestName = "fila-admin"
	sessionName = "fila-session"
)

// credentials are what a request shows of its user. The first of them that is there counts.
type credentials struct {
	basic          bool // user and password of HTTP Basic authentication
	user, password string
	token          string // of a session
	certificate    string // common name of the client's certificate
}

// conn is a connection to the broker that speaks for the user of a request.
type conn struct {
	*client.Conn

	user    string
	session *session        // nil without
	over    <-chan struct{} // closed at its end
	gate    *replyGate
}

// Close ends the connection.
func (c *conn) Close() {
	_ = c.Conn.Close() // it may have ended before
	c.gate.release()
}

// credentialsOf reads what a request shows of its user.
func (s *Server) credentialsOf(r *http.Request) credentials {
	var c credentials
	if c.user, c.password, c.basic = r.BasicAuth(); c.basic {
		if c.user == "" {
			c.user = defaultUser
		}
		return c
	}
	if cookie, err := r.Cookie(cookieName(r)); err == nil && !s.cfg.OneUser {
		c.token = cookie.Value
	}
	if s.cfg.CertificateUsers && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c.certificate = r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	return c
}

// defaultUser is the user of a request without credentials, where that is allowed.
const defaultUser = "default"

// userHeader names the user that a page shows, percent-encoded. All tabs of a browser have one session:
// a page must not act for the user of another tab.
const userHeader = "Fila-User"

// open opens a connection for a request. The caller closes it.
func (s *Server) open(r *http.Request) (*conn, error) {
	who := s.credentialsOf(r)
	switch {
	case who.basic:
		return s.authenticate(r, who.user, who.password, requestName)
	case who.token != "":
		session := s.sessions.find(who.token)
		if session == nil && s.cfg.Broker.State(r.Context()) == Stopping { // it ended with the broker's connections
			return nil, ErrUnavailable
		}
		if session == nil {
			return nil, failed(http.StatusUnauthorized, "NOAUTH", "the session is over")
		}
		if meant, err := url.PathUnescape(r.Header.Get(userHeader)); err != nil || meant != "" && meant != session.user {
			return nil, failed(http.StatusConflict, "OTHERUSER", "another user has logged in with this browser since the page was opened")
		}
		c, err := s.dial(r, session.user, session.user, client.Options{Name: requestName})
		if client.Refused(err, "NOAUTH") { // the user is gone, or off
			s.sessions.end(session)
		}
		if err == nil {
			c.session = session
		}
		return c, err
	case who.certificate != "":
		c, err := s.dial(r, who.certificate, who.certificate, client.Options{Name: requestName})
		if !client.Refused(err, "NOAUTH") {
			return c, err
		}
	}
	return s.dial(r, "", defaultUser, client.Options{Name: requestName})
}

// authenticate opens a connection that authenticates with a password, as often as the
// address may try.
func (s *Server) authenticate(r *http.Request, user, password, name string) (c *conn, err error) {
	err = s.attempts.try(address(r).Addr(), func() error {
		c, err = s.dial(r, "", user, client.Options{User: user, Password: password, Name: name})
		return err
	})
	return c, err
}

// dial opens a connection. vouched is a user that needs no password; user is the one that
// the connection then has.
func (s *Server) dial(r *http.Request, vouched, user string, o client.Options) (*conn, error) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	nc, over, err := s.cfg.Broker.Connect(vouched, net.TCPAddrFromAddrPort(address(r)), local)
	if err != nil {
		return nil, err
	}
	gate := &replyGate{Conn: nc, ctx: r.Context(), large: s.large}
	o.ReplyBytesMax = replyBytesMax
	ctx, cancel := context.WithTimeout(r.Context(), writeTime)
	defer cancel()
	c, err := client.New(ctx, gate, o)
	if err != nil {
		gate.release()
		return nil, err
	}
	return &conn{Conn: c, user: user, over: over, gate: gate}, nil
}

// address returns the address of the HTTP client.
func address(r *http.Request) netip.AddrPort {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero one for what is no TCP
	return addr
}

// replyGate bounds how many large replies are in memory at once: a connection that has read
// smallBytes waits for a place among the large ones, and has it until its end. It holds no
// other place that another one could wait for.
type replyGate struct {
	net.Conn

	ctx   context.Context //nolint:containedctx // of the request, which the connection ends with
	large places          // nil: no bound
	read  int
	has   bool
}

// Read reads from the broker.
func (g *replyGate) Read(b []byte) (int, error) {
	if g.large != nil && !g.has && g.read > smallBytes {
		if err := g.large.wait(g.ctx); err != nil {
			return 0, err
		}
		g.has = true
	}
	n, err := g.Conn.Read(b)
	g.read += n
	return n, err
}

// release returns the place. Nothing reads any more.
func (g *replyGate) release() {
	if g.has {
		g.has = false
		g.large.leave()
	}
}
