package admin

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/internal/client"
)

// stream is a response of server-sent events under way.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	c       *conn
}

// begin takes a place among the streams, opens a connection and calls start, which sends the
// first command: its refusal is that of the request. Then it runs the stream. The request
// ends with the broker's connection, its session and its client.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, start func(ctx context.Context, c *conn) error, run func(ctx context.Context, e *stream) error) {
	if r.ContentLength != 0 {
		fail(w, http.StatusBadRequest, "ERR", "the request must have no body")
		return
	}
	if !s.streams.take() {
		refuse(w, r, busy("streams"))
		return
	}
	defer s.streams.leave()
	c, err := s.open(r)
	if err == nil {
		defer c.Close()
		c.gate.large = nil // a stream may last, and its replies are small
		err = start(r.Context(), c)
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	e := &stream{w: w, control: http.NewResponseController(w), c: c}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	if err := e.write([]byte("retry: 2000\n\n")); err != nil {
		return
	}
	if err := run(ctx, e); err != nil && r.Context().Err() == nil {
		_ = e.send("end", client.AppendJSON(nil, reason(err).RefusalError)) // the stream ends anyway
	}
}

// send sends an event; with an empty name it is one of the default kind.
func (e *stream) send(name string, data []byte) error {
	var b []byte
	if name != "" {
		b = fmt.Appendf(b, "event: %s\n", name)
	}
	b = append(append(b, "data: "...), bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: "))...)
	return e.write(append(b, "\n\n"...))
}

func (e *stream) write(b []byte) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.control.Flush()
}

// ended returns what ends the stream from the side of the broker: its connection and its
// session; the latter is nil without a session.
func (e *stream) ended() (connection, session <-chan struct{}) {
	if e.c.session != nil {
		session = e.c.session.done
	}
	return e.c.over, session
}

// alive counts the stream as a use of its session.
func (s *Server) alive(e *stream) {
	if e.c.session != nil {
		s.sessions.use(e.c.session)
	}
}

// errEnded is why a stream ends that its client has not ended.
func errEnded() error {
	return failed(http.StatusServiceUnavailable, "CLOSED", "the broker has ended the connection, or the session is over")
}

// events streams the events of channels, or of patterns of channels.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	command, names := "SUBSCRIBE", query["channel"]
	if len(names) == 0 {
		command, names = "PSUBSCRIBE", query["pattern"]
	}
	if len(names) == 0 || len(names) > channelsMax || query.Has("channel") && query.Has("pattern") {
		fail(w, http.StatusBadRequest, "ERR", fmt.Sprintf("name 1 to %d channels as ?channel=..., or patterns as ?pattern=...", channelsMax))
		return
	}
	start := func(ctx context.Context, c *conn) error { return c.Subscribe(ctx, command, names...) }
	s.begin(w, r, start, s.pushes)
}

// pushes sends what the broker pushes. One goroutine reads, so that a quiet stream can show
// signs of life.
func (s *Server) pushes(ctx context.Context, e *stream) error {
	ctx, cancel := context.WithCancel(ctx)
	pushes, ended := make(chan string), make(chan struct{})
	var failure error // of the connection; set before ended is closed
	go func() {
		defer close(ended)
		failure = e.c.read(ctx, pushes)
	}()
	err := s.relay(ctx, e, pushes, ended)
	cancel()
	<-ended // nothing reads from the connection when it is closed
	if err != nil {
		return err
	}
	return failure
}

// read passes on the payloads of pushes until the connection or ctx ends.
func (c *conn) read(ctx context.Context, to chan<- string) error {
	for {
		push, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if len(push) == 0 {
			continue
		}
		select {
		case to <- client.Text(push[len(push)-1]):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// relay sends pushes until nothing reads any more, or the stream ends for another reason,
// which it returns.
func (s *Server) relay(ctx context.Context, e *stream, pushes <-chan string, ended <-chan struct{}) error {
	quiet := time.NewTicker(quietEvery)
	defer quiet.Stop()
	_, session := e.ended()
	for {
		select {
		case push := <-pushes:
			if err := e.send("", []byte(push)); err != nil {
				return err
			}
		case <-quiet.C:
			s.alive(e)
			if err := e.write([]byte(": quiet\n\n")); err != nil {
				return err
			}
		case <-ended:
			return nil
		case <-session:
			return errEnded()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// live streams the figures of a queue and of its first fairness keys, or of the broker and of a
// page of queues, each second.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	view := brokerView(query)
	if query.Has("queue") {
		view = queueView(query)
	}
	var first client.Map
	start := func(ctx context.Context, c *conn) (err error) {
		first, err = view.look(ctx, c)
		return err
	}
	s.begin(w, r, start, func(ctx context.Context, e *stream) error {
		if err := e.send("figures", client.AppendJSON(nil, first)); err != nil {
			return err
		}
		return s.figures(ctx, e, view)
	})
}

// liveView asks for what a stream of figures shows, the fields of an event.
type liveView func(ctx context.Context, c *conn) (client.Map, error)

// options returns the parameters of a query that have one of the names, as the options of a
// command. What they may be is for the command to say.
func options(query url.Values, names ...string) (words []string) {
	for _, name := range names {
		if query.Has(name) {
			words = append(words, strings.ToUpper(name), query.Get(name))
		}
	}
	return words
}

// brokerView shows the sums of all queues, what is wrong with those that the user may look at, and a page of these.
func brokerView(query url.Values) liveView {
	words := append([]string{"FILA.FIGURES", "FOLD", "COUNT", strconv.Itoa(liveQueues)}, options(query, "match", "state", "trouble", "cursor")...)
	by := "NAME"
	if query.Has("by") {
		by = query.Get("by")
	}
	words = append(words, "BY", by)
	if query.Has("rev") {
		words = append(words, "REV")
	}
	var groups any // of the last look that had the time for them
	var grouped time.Time
	return func(ctx context.Context, c *conn) (client.Map, error) {
		stats, err := c.Do(ctx, "FILA.STATS")
		if err != nil {
			return nil, err
		}
		reply, err := c.Do(ctx, words...)
		if err != nil {
			return nil, err
		}
		next, queues := pageOf(reply)
		if time.Since(grouped) >= liveGroups {
			if reply, err = c.Do(ctx, "FILA.FIGURES", "GROUP", "TROUBLE"); err != nil {
				return nil, err
			}
			_, groups = pageOf(reply)
			grouped = time.Now()
		}
		return client.Map{{Name: "stats", Value: stats}, {Name: "next", Value: next}, {Name: "queues", Value: queues}, {Name: "groups", Value: groups}}, nil
	}
}

// queueView shows a queue, and its first fairness keys in an order.
func queueView(query url.Values) liveView {
	queue, order := query.Get("queue"), options(query, "by")
	if len(order) == 0 {
		order = []string{"BY", "DEPTH"}
	}
	return func(ctx context.Context, c *conn) (client.Map, error) {
		reply, err := c.Do(ctx, "FILA.FIGURES", "QUEUE", queue)
		if err != nil {
			return nil, err
		}
		var figures any
		if _, queues := pageOf(reply); len(queues) == 1 {
			figures = queues[0]
		}
		if reply, err = c.Do(ctx, append([]string{"FILA.KEYS", queue, "COUNT", strconv.Itoa(liveKeys)}, order...)...); err != nil {
			return nil, err
		}
		_, first := pageOf(reply)
		return client.Map{{Name: "queue", Value: figures}, {Name: "keys", Value: first}}, nil
	}
}

// pageOf returns the cursor and the items of a page.
func pageOf(reply any) (next any, items []any) {
	if page, _ := reply.([]any); len(page) == 2 {
		next = page[0]
		items, _ = page[1].([]any)
	}
	return next, items
}

// look asks for the figures, and returns them with their time.
func (v liveView) look(ctx context.Context, c *conn) (client.Map, error) {
	fields, err := v(ctx, c)
	if err != nil {
		return nil, err
	}
	return append(client.Map{{Name: "at", Value: time.Now().UnixMilli()}}, fields...), nil
}

// figures sends the figures of a view each second.
func (s *Server) figures(ctx context.Context, e *stream, view liveView) error {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	over, session := e.ended()
	for {
		select {
		case <-tick.C:
		case <-over:
			return errEnded()
		case <-session:
			return errEnded()
		case <-ctx.Done():
			return ctx.Err()
		}
		s.alive(e)
		figures, err := view.look(ctx, e.c)
		if err == nil {
			err = e.send("figures", client.AppendJSON(nil, figures))
		}
		if err != nil {
			return err
		}
	}
}
