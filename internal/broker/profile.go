package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// serveProfiles serves profiles of this process until ctx ends, when there is an
// address to serve them at. Nothing waits for its end: a profile that is being made
// is worth no delay.
func serveProfiles(ctx context.Context, addr string, log zerolog.Logger) error {
	if addr == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("server.pprof_addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // it held nothing
	go func() {
		if err := server.Serve(few{listener, make(chan struct{}, profilesMax)}); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("profiles are not served any more")
		}
	}()
	log.Info().Str("url", "http://"+listener.Addr().String()+"/debug/pprof/").Msg("profiles are served")
	return nil
}

// profilesMax bounds the connections for profiles: their descriptors are among those of
// filesBeside.
const profilesMax = 8

// few is a listener with a bound on its connections; further ones wait to be accepted.
type few struct {
	net.Listener
	room chan struct{}
}

func (f few) Accept() (net.Conn, error) {
	f.room <- struct{}{}
	c, err := f.Listener.Accept()
	if err != nil {
		<-f.room
		return nil, err
	}
	return &fewConn{Conn: c, leave: sync.OnceFunc(func() { <-f.room })}, nil
}

// fewConn makes room when it is closed.
type fewConn struct {
	net.Conn
	leave func()
}

func (c *fewConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
