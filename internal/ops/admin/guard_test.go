package admin

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// A page of an attacker whose name leads to this machine is of one origin with what it asks
// for: only its name gives it away.
func TestARequestForAnotherHostIsRefused(t *testing.T) {
	s := serve(t, newBroker(t), func(c *Config) { c.Hosts = []string{"Fila.Example."} })
	for host, known := range map[string]bool{
		"localhost": true, "LOCALHOST:5557": true, "127.0.0.1": true, "127.0.0.1:80": true, "[::1]:5557": true, "[::1]": true, "10.1.2.3:5557": true,
		"fila.example": true, "FILA.example:443": true, "fila.example.": true,
		"evil.example": false, "evil.example:5557": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "x.fila.example": false,
		"fila.example.evil": false, "0x7f000001": false, "2130706433": false, "127.1": false, "localhost@evil.example": false,
	} {
		for _, path := range []string{"/v1/session", "/healthz", "/v1/live", "/nothing"} {
			got := s.do("GET", path+"?queue=nosuch", "", to(host))
			if refused := got.status == http.StatusForbidden; refused == known {
				t.Errorf("%s for %s: %d %s", path, host, got.status, got.body)
			}
		}
		if got := s.do("POST", "/v1/command", `["PING"]`, to(host)); (got.status == 200) != known {
			t.Errorf("a command for %s: %d %s", host, got.status, got.body)
		}
	}
	s.SetHosts([]string{"other.example"})
	for host, want := range map[string]int{"fila.example": 403, "other.example": 200} {
		if got := s.do("GET", "/healthz", "", to(host)); got.status != want {
			t.Errorf("after the change, %s: %d", host, got.status)
		}
	}
	if got := said(t, s.addr, "GET /healthz HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.0 403") {
		t.Errorf("without a host: %.200q", got)
	}
}

// said sends bytes and returns what comes back until the end or the first empty line.
func said(t *testing.T, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testkit.Patience())); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = c.Write([]byte(request)) }()
	var all strings.Builder
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		all.WriteString(line)
		if err != nil || line == "\r\n" {
			return all.String()
		}
	}
}

func TestAPageOfAnotherOriginChangesAndReadsNothing(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	own := "http://" + s.addr
	for name, x := range map[string]struct {
		options []option
		want    int
	}{
		"a program":                       {nil, 200},
		"its own page":                    {[]option{with("Sec-Fetch-Site", "same-origin"), with("Origin", own)}, 200},
		"typed by the user":               {[]option{with("Sec-Fetch-Site", "none")}, 200},
		"its own page, an older browser":  {[]option{with("Origin", own)}, 200},
		"another site":                    {[]option{with("Sec-Fetch-Site", "cross-site"), with("Origin", "https://evil.example")}, 403},
		"another site of the same domain": {[]option{with("Sec-Fetch-Site", "same-site"), with("Origin", own)}, 403},
		"another port":                    {[]option{with("Origin", "http://127.0.0.1:1")}, 403},
		"another site, an older browser":  {[]option{with("Origin", "https://evil.example")}, 403},
		"a page without an origin":        {[]option{with("Origin", "null")}, 403},
		"a header of no browser":          {[]option{with("Sec-Fetch-Site", "x")}, 403},
		"a form of another site":          {[]option{with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "navigate")}, 403},
	} {
		if got := s.do("POST", "/v1/command", `["PING"]`, x.options...); got.status != x.want {
			t.Errorf("a command for %s: %d, want %d", name, got.status, x.want)
		}
		if got := s.login("default", "x", x.options...); (got.status == http.StatusForbidden) != (x.want == 403) {
			t.Errorf("a login for %s: %d", name, got.status)
		}
		if name == "a form of another site" {
			continue // to follow a link is to read
		}
		if got := s.do("GET", "/v1/session", "", x.options...); got.status != x.want {
			t.Errorf("the session for %s: %d, want %d", name, got.status, x.want)
		}
		if got := s.do("GET", "/v1/live?queue=nosuch", "", x.options...); (got.status == 403) != (x.want == 403) {
			t.Errorf("figures for %s: %d", name, got.status)
		}
	}
}

func TestTheStrictHeadersAreOnEverything(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	seen := map[int]bool{}
	for _, got := range []reply{
		s.do("GET", "/healthz", ""), s.do("GET", "/nothing", ""), s.do("PUT", "/healthz", ""), s.do("GET", "/v1/session", ""),
		s.do("GET", "/v1/session", "", as("admin", "nimda")), s.do("GET", "/healthz", "", to("evil.example")), s.do("POST", "/v1/command", "[]", as("admin", "nimda")),
		s.do("GET", "//v1/session", ""), s.login("admin", "nimda"), s.do("GET", "/metrics", ""), s.do("GET", "/v1/live", "x"),
	} {
		seen[got.status] = true
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
				"form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if v := got.header.Values(name); len(v) != 1 || v[0] != want {
				t.Errorf("%d: %s is %q", got.status, name, v)
			}
		}
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%d: %s", got.status, name)
			}
		}
	}
	for _, status := range []int{200, 204, 400, 401, 403, 404, 405} {
		if !seen[status] {
			t.Errorf("no reply was %d", status)
		}
	}
}

func TestGiantHeadersAndBodiesAreRefused(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	head := func(n int) string {
		return "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", n) + "\r\n\r\n"
	}
	for n, want := range map[int]string{headerBytesMax - 100: "HTTP/1.1 200", headerBytesMax + 5000: "HTTP/1.1 431"} {
		if got := said(t, s.addr, head(n)); !strings.HasPrefix(got, want) {
			t.Errorf("a header of %d bytes: %.100q", n, got)
		}
	}
	const frame = len(`["ECHO",""]`)
	for n, want := range map[int]int{bodyBytesMax: 200, bodyBytesMax + 1: 413} {
		body := `["ECHO","` + strings.Repeat("x", n-frame) + `"]`
		if got := s.do("POST", "/v1/command", body); got.status != want {
			t.Errorf("a body of %d bytes: %d %.100s", n, got.status, got.body)
		}
	}
	if got := s.login("admin", strings.Repeat("x", formBytesMax)); got.status != 400 {
		t.Errorf("a form of %d bytes: %d", formBytesMax, got.status)
	}
}

// pipes is a listener whose connections are pipes: what is slow takes no time in a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial opens a connection.
func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

// connect makes the client of a site reach it by pipes, as it has to in a bubble.
func (s *site) connect(l *pipes) {
	s.addr = "localhost"
	s.client.Transport = &http.Transport{
		MaxIdleConnsPerHost: 1, DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
	}
}

// A client that sends a byte a second is cut off, in its header and in its body.
func TestSlowClientsAreCutOff(t *testing.T) {
	for name, x := range map[string]struct {
		at   string
		want time.Duration
	}{
		"nothing at all": {"", headerTime},
		"header":         {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", headerTime},
		"body":           {"POST /v1/command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", bodyTime},
		"unread body":    {"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", bodyTime},
		"form":           {"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n", bodyTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipes()
				serveOn(t, l, newBroker(t), nil)
				c := l.dial()
				defer c.Close()
				began, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					buf := make([]byte, 4096)
					for {
						if _, err := c.Read(buf); err != nil {
							ended <- time.Since(began)
							return
						}
					}
				}()
				if _, err := fmt.Fprint(c, x.at); err != nil {
					t.Fatal(err)
				}
				slow := make(chan struct{})
				defer func() { <-slow }()
				go func() {
					defer close(slow)
					for {
						time.Sleep(time.Second)
						if _, err := c.Write([]byte("x")); err != nil {
							return
						}
					}
				}()
				if took := <-ended; took < x.want || took > x.want+2*time.Second {
					t.Errorf("it is cut off after %s, want %s", took, x.want)
				}
			})
		})
	}
}

func TestAPrefixIsOfEveryPath(t *testing.T) {
	s := serve(t, newBroker(t), func(c *Config) { c.Prefix = "/fila/" })
	for path, want := range map[string]int{"/fila/healthz": 200, "/fila/v1/session": 200, "/healthz": 404, "/v1/session": 404, "/": 404, "/fila": 404, "/filahealthz": 404} {
		if got := s.do("GET", path, ""); got.status != want {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
}

func TestAConfigurationThatCannotBeIsRefused(t *testing.T) {
	for _, cfg := range []Config{{}, {Broker: &broker{}, Prefix: "x"}, {Broker: &broker{}, Prefix: "/x"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
