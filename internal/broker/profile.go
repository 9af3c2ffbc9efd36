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

// serveProfiles serves Go profiles at addr until ctx ends; nowhere if addr is empty. Stopping the
// broker does not wait for a profile in progress.
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
	context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing to lose
	go func() {
		if err := server.Serve(few{listener, make(chan struct{}, profilesMax)}); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("profile server failed")
		}
	}()
	log.Info().Str("url", "http://"+listener.Addr().String()+"/debug/pprof/").Msg("serving profiles")
	return nil
}

// profilesMax bounds the connections for profiles, which are part of filesBeside.
const profilesMax = 8

// few is a listener with a bound on open connections. Further connections wait in the
// listen queue of the system.
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

// fewConn is a connection of few. Closing it admits another one.
type fewConn struct {
	net.Conn
	leave func()
}

func (c *fewConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
