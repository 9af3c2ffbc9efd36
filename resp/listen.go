package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	acceptPauseFirst   = 5 * time.Millisecond
	acceptPauseLongest = time.Second
	keepAliveIdle      = 15 * time.Second
	keepAliveEvery     = 5 * time.Second
	keepAliveProbes    = 3
)

// listener is an open Listener.
type listener struct {
	net.Listener

	of Listener
}

// Listen opens the ports; clients may connect and wait from then on. It returns the addresses of
// Config.Addr and Config.TLSAddr, nil where there is none.
func (s *Server) Listen(ctx context.Context) (plain, secure net.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) > 0 || s.isStopping() {
		return nil, nil, ErrServing
	}
	for _, l := range s.cfg.listeners() {
		opened, err := listen(ctx, l.Addr)
		if err != nil {
			err = &ListenError{Listener: l, Err: err}
			for _, earlier := range s.listeners {
				err = errors.Join(err, earlier.Close())
			}
			s.listeners = nil
			return nil, nil, err
		}
		s.listeners = append(s.listeners, listener{opened, l})
	}
	first := s.listeners[:len(s.listeners)-len(s.cfg.More)]
	for _, l := range first {
		if l.of.TLS {
			secure = l.Addr()
		} else {
			plain = l.Addr()
		}
	}
	return plain, secure, nil
}

// More returns the addresses of Config.More, in its order. It may be called after Listen.
func (s *Server) More() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []net.Addr
	for _, l := range s.listeners[len(s.listeners)-len(s.cfg.More):] {
		all = append(all, l.Addr())
	}
	return all
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{
		Control: controlSocket,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveEvery, Count: keepAliveProbes,
		},
	}
	return lc.Listen(ctx, "tcp", addr)
}

// Serve accepts connections until Shutdown, and then returns nil at once while Shutdown
// waits for the connections; or until ctx ends, and then closes every connection and
// returns the context's error.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	if len(listeners) == 0 {
		return ErrServing
	}
	defer context.AfterFunc(ctx, s.closeAll)()
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- s.accept(ctx, l) }()
	}
	err := <-ended
	if err != nil {
		for _, l := range listeners {
			_ = l.Close() // ends the other accept loops
		}
	}
	for range listeners[1:] {
		err = errors.Join(err, <-ended)
	}
	return err
}

// accept accepts connections from one listener.
func (s *Server) accept(ctx context.Context, l listener) error {
	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			if l.of.TLS {
				nc = tls.Server(nc, s.cfg.TLS)
			}
			// Here and not on a goroutine: surplus connections, each with a descriptor,
			// are thus at most one per port.
			if c := s.admit(nc); c == nil {
				s.reject(nc)
			} else {
				c.mode = l.of.Mode
				go s.serve(c) // not under ctx: connections outlast the accept loop
			}
			continue
		}
		if s.isStopping() {
			return ctx.Err()
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept: %w", err)
		}
		// Probably out of descriptors: retry after connections have ended.
		if pause = min(max(2*pause, acceptPauseFirst), acceptPauseLongest); pause == acceptPauseFirst {
			s.cfg.Log.Warn().Err(err).Msg("cannot accept connections: trying again")
		}
		select {
		case <-time.After(pause):
		case <-s.stopping:
		}
	}
}
