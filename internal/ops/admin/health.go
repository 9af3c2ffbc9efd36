package admin

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/yield"
)

// healthz answers whether the broker is alive: 503 if no task goes through its loop. A
// broker that recovers or stops is on its way, and to kill it would begin that anew.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	state := s.cfg.Broker.State(r.Context())
	say(w, state, state != Stuck && state != Unreachable)
}

// readyz answers whether the broker takes all commands.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	state := s.cfg.Broker.State(r.Context())
	say(w, state, state == Running)
}

// say answers with a state.
func say(w http.ResponseWriter, state State, well bool) {
	status := http.StatusOK
	if !well {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(state + "\n")) // an error is the client's
}

// metrics answers with the metrics that the user may see.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Metrics == nil {
		fail(w, http.StatusNotFound, "ERR", "this broker has no metrics")
		return
	}
	if !s.requests.take() {
		refuse(w, r, busy("requests"))
		return
	}
	defer s.requests.leave()
	format, contentType := s.cfg.Metrics(r.Header)
	text, err := s.readMetrics(r, format)
	if err != nil {
		refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", contentType)
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(text) // an error is the client's
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	compress(w, text)
}

// compress writes a text in the form of gzip. It prefers speed, and lets others run meanwhile.
func compress(w io.Writer, text []byte) {
	var breaks yield.Breaks
	defer breaks.End()
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return // there is no such level
	}
	for part := range slices.Chunk(text, compressBreak) {
		if _, err := z.Write(part); err != nil {
			return // an error is the client's
		}
		breaks.Take()
	}
	_ = z.Close()
}

// compressBreak is how many bytes are compressed without a break.
const compressBreak = 16 << 10

// readMetrics returns the reply of FILA.METRICS to the user of a request: the right to it is the
// right to the metrics.
func (s *Server) readMetrics(r *http.Request, format string) ([]byte, error) {
	c, err := s.open(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reply, err := c.Do(r.Context(), "FILA.METRICS", format)
	if err != nil {
		return nil, err
	}
	text, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("FILA.METRICS: %T instead of a string", reply)
	}
	return []byte(text), nil
}
