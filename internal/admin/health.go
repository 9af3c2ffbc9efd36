package admin

import "net/http"

// healthz answers whether the broker is alive: 503 if no task goes through its loop. A
// broker that recovers or stops is on its way, and to kill it would begin that anew.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	state := s.cfg.Broker.State(r.Context())
	say(w, state, state != Stuck)
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
	user, err := s.mayReadMetrics(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	s.cfg.Metrics(w, r, user)
}

// metricsCommand is the command whose right is that of the metrics.
const metricsCommand = "fila.metrics"

// mayReadMetrics returns the user of a request. The error says that it may not run
// FILA.METRICS.
func (s *Server) mayReadMetrics(r *http.Request) (user string, err error) {
	c, err := s.open(r)
	if err != nil {
		return "", err
	}
	defer c.Close()
	me, err := c.whoAmI(r.Context())
	if err != nil {
		return "", err
	}
	if me.may(metricsCommand) {
		return me.user, nil
	}
	// The refusal comes from the command itself, so that ACL LOG shows it.
	if _, err = c.Do(r.Context(), metricsCommand); err == nil {
		err = failed(http.StatusForbidden, "NOPERM", "this user has no permissions to run the '"+metricsCommand+"' command")
	}
	return "", err
}
