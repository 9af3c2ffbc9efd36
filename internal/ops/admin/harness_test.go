package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// broker is a broker in this process with its store in memory, as the listener sees one.
type broker struct {
	server *resp.Server
	engine *loop.Engine
	log    lines

	mu    sync.Mutex
	state State
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// users are those of the tests, where there are any: the password of each is its name
// backwards.
func users() []string {
	return []string{
		"user default off",
		"user admin on >nimda ~* &* +@all",
		"user bob on >bob ~jobs* &fila:jobs:* +@all -@dangerous +acl|whoami",
		"user ann on >nna %R~jobs* +fila.stats",
	}
}

// newBroker starts a broker; without users every client may do everything.
func newBroker(t testing.TB, users ...string) *broker {
	t.Helper()
	b := &broker{state: Running}
	cfg := engine.DefaultConfig()
	cfg.FiguresAge = 100 * time.Millisecond
	var err error
	if b.engine, err = loop.New(cfg, storage.NewMemory()); err != nil {
		t.Fatal(err)
	}
	h, err := commands.New(commands.Config{Now: time.Now, Users: users, Log: zerolog.New(&b.log), Shutdown: func() {}}, b.engine)
	if err != nil {
		t.Fatal(err)
	}
	if b.server, err = resp.NewServer(resp.DefaultConfig(), h); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.engine.Run(context.Background()) }()
	<-b.engine.Ready()
	t.Cleanup(func() {
		b.engine.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience())
		defer cancel()
		if err := b.server.Shutdown(ctx); err != nil {
			t.Errorf("connections are left: %v", err)
		}
	})
	return b
}

// end is the broker's end of a pipe.
type end struct {
	net.Conn

	from, to net.Addr
	once     sync.Once
	over     chan struct{}
}

func (e *end) Close() error {
	e.once.Do(func() { close(e.over) })
	return e.Conn.Close()
}

func (e *end) RemoteAddr() net.Addr { return e.from }
func (e *end) LocalAddr() net.Addr  { return e.to }

// Connect implements Broker.
func (b *broker) Connect(user string, from, to net.Addr) (net.Conn, <-chan struct{}, error) {
	theirs, ours := net.Pipe()
	e := &end{Conn: ours, from: from, to: to, over: make(chan struct{})}
	go b.server.ServeLocal(e, user)
	return theirs, e.over, nil
}

// State implements Broker.
func (b *broker) State(context.Context) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

func (b *broker) become(state State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = state
}

// site is a listener in front of a broker.
type site struct {
	*Server

	t      *testing.T
	broker *broker
	addr   string
	client http.Client
}

// serve starts a listener on a free port.
func serve(t *testing.T, b *broker, change func(*Config)) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, b, change)
}

func serveOn(t *testing.T, l net.Listener, b *broker, change func(*Config)) *site {
	t.Helper()
	cfg := Config{Broker: b, Version: "1.2.3", Log: zerolog.New(&b.log)}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	x := &site{Server: s, t: t, broker: b, addr: l.Addr().String()}
	x.client.Transport = &http.Transport{MaxIdleConnsPerHost: 1}
	t.Cleanup(func() {
		x.client.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		for name, p := range map[string]places{"requests": s.requests, "streams": s.streams, "logins": s.logins, "large": s.large} {
			testkit.Eventually(t, name+" give their places back", func() bool { return len(p) == 0 })
		}
	})
	return x
}

// reply is a response that was read.
type reply struct {
	status int
	header http.Header
	body   string
}

// json parses the body.
func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return m
}

// token returns the session that a login has begun.
func (r reply) cookie(t *testing.T) *http.Cookie {
	t.Helper()
	all := (&http.Response{Header: r.header}).Cookies()
	if len(all) != 1 {
		t.Fatalf("%d: %d cookies, %s", r.status, len(all), r.body)
	}
	return all[0]
}

type option func(*http.Request)

func as(user, password string) option {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

func with(name, value string) option { return func(r *http.Request) { r.Header.Set(name, value) } }

func to(host string) option { return func(r *http.Request) { r.Host = host } }

func in(c *http.Cookie) option {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }
}

// send sends a request and returns the response with its body unread.
func (s *site) send(method, path, body string, options ...option) *http.Response {
	s.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, from)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, o := range options {
		o(r)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

// do sends a request and reads the response.
func (s *site) do(method, path, body string, options ...option) reply {
	s.t.Helper()
	resp := s.send(method, path, body, options...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// run sends a command of words without spaces and wants a status.
func (s *site) run(want int, command string, options ...option) string {
	s.t.Helper()
	words, err := json.Marshal(strings.Fields(command))
	if err != nil {
		s.t.Fatal(err)
	}
	got := s.do("POST", "/v1/command", string(words), options...)
	if got.status != want {
		s.t.Errorf("%s: %d %s, want %d", command, got.status, got.body, want)
	}
	return strings.TrimSuffix(got.body, "\n")
}

// login begins a session.
func (s *site) login(user, password string, options ...option) reply {
	s.t.Helper()
	form := with("Content-Type", "application/x-www-form-urlencoded")
	return s.do("POST", "/v1/session", fmt.Sprintf("user=%s&password=%s", user, password), append([]option{form}, options...)...)
}

// session begins a session that must begin.
func (s *site) session(user, password string) option {
	s.t.Helper()
	return in(s.login(user, password).cookie(s.t))
}

// cookieName is the name of the cookie of a session, which has the port in it.
func (s *site) cookieName(prefix string) string {
	return prefix + "fila-session-" + s.addr[strings.LastIndexByte(s.addr, ':')+1:]
}
