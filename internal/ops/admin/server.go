package admin

import (
	"context"
	"errors"
	stdlog "log" //nolint:depguard // net/http takes no other logger
	"net"
	"net/http"
	"sync/atomic"

	"github.com/faisca/fila/internal/ops/admin/ui"
)

// Server serves HTTP. Its methods are safe for concurrent use.
type Server struct {
	cfg      Config
	hosts    atomic.Pointer[map[string]bool]
	sessions sessions
	attempts attempts

	requests places
	streams  places
	logins   places
	large    places // for replies

	http http.Server
}

// New validates cfg. It opens no port.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, requests: newPlaces(requestsMax), streams: newPlaces(streamsMax), logins: newPlaces(loginsMax), large: newPlaces(largeMax),
	}
	s.SetHosts(cfg.Hosts)
	// HTTP/2 would put many requests on one connection, and have bounds of its own to attack.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	s.http = http.Server{
		Handler: s.Handler(), Protocols: &protocols, MaxHeaderBytes: headerBytesMax, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		WriteTimeout: commandTime + writeTime, // streams and replies set their own
		ErrorLog:     stdlog.New(debugLines{s}, "", 0),
	}
	return s, nil
}

// debugLines logs what net/http says of clients, such as failed handshakes.
type debugLines struct{ s *Server }

func (d debugLines) Write(b []byte) (int, error) {
	d.s.cfg.Log.Debug().Bytes("said", b).Msg("admin listener")
	return len(b), nil
}

// SetHosts replaces the names that requests may ask for.
func (s *Server) SetHosts(names []string) {
	hosts := make(map[string]bool, len(names))
	for _, name := range names {
		hosts[hostName(name)] = true
	}
	s.hosts.Store(&hosts)
}

// Serve serves the connections of a listener until Close. The caller bounds their number to
// ConnectionsMax, and does TLS.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends all sessions, waits for requests under way until ctx ends, and closes all
// connections.
func (s *Server) Close(ctx context.Context) {
	s.sessions.close()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // nothing can be done about it
	}
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /healthz":          s.healthz,
		"GET /readyz":           s.readyz,
		"GET /metrics":          s.metrics,
		"POST /v1/command":      s.command,
		"GET /v1/queues/{name}": s.queue,
		"GET /v1/events":        s.events,
		"GET /v1/live":          s.live,
		"GET /v1/session":       s.about,
		"POST /v1/session":      s.login,
		"DELETE /v1/session":    s.logout,
	} {
		mux.HandleFunc(pattern, h)
	}
	dashboard := ui.Handler()
	mux.Handle("GET /{$}", dashboard)
	mux.Handle("GET /assets/", dashboard)
	paths := http.StripPrefix(s.cfg.Prefix[:len(s.cfg.Prefix)-1], mux)
	return guardBody(strictHeaders(s.guardHost(s.guardOrigin(paths))))
}

// places are a number of places for what happens at once.
type places chan struct{}

func newPlaces(n int) places { return make(places, n) }

// take takes a place if one is free.
func (p places) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait waits for a place until ctx ends.
func (p places) wait(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p places) leave() { <-p }
