package admin

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

func TestWithoutPasswordsEveryRequestIsOfTheDefaultUser(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	if got := s.run(200, "ACL WHOAMI"); got != `"default"` {
		t.Errorf("it is %s", got)
	}
	me := s.do("GET", "/v1/session", "").json(t)
	commands, _ := me["commands"].(map[string]any)
	if me["user"] != "default" || me["version"] != "1.2.3" || me["session"] != false || commands["fila.lease"] != true || commands["acl|deluser"] != true || len(commands) < 100 {
		t.Errorf("%.300v", me)
	}
}

func TestARequestWithoutCredentialsIsRefused(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	for _, got := range []reply{
		s.do("POST", "/v1/command", `["PING"]`), s.do("GET", "/v1/session", ""), s.do("GET", "/v1/live", ""), s.do("GET", "/v1/events?channel=x", ""),
		s.do("POST", "/v1/command", `not even JSON`),
	} {
		if got.status != http.StatusUnauthorized || got.json(t)["code"] != "NOAUTH" || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%d %s, %q", got.status, got.body, got.header.Get("WWW-Authenticate"))
		}
	}
	// The browser must not ask in place of the page.
	if got := s.do("GET", "/v1/session", "", with("Sec-Fetch-Mode", "cors"), with("Sec-Fetch-Site", "same-origin")); got.status != 401 || got.header.Get("WWW-Authenticate") != "" {
		t.Errorf("a page: %d, %q", got.status, got.header.Get("WWW-Authenticate"))
	}
}

func TestBasicAuthenticationIsThatOfTheUser(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	bob := as("bob", "bob")
	if got := s.run(200, "ACL WHOAMI", bob); got != `"bob"` {
		t.Errorf("it is %s", got)
	}
	s.run(403, "ACL LIST", bob)
	s.run(403, "FILA.ENQUEUE mails x", bob)
	s.run(404, "FILA.ENQUEUE jobs x", bob)
	ann := s.do("GET", "/v1/session", "", as("ann", "nna")).json(t)
	commands, _ := ann["commands"].(map[string]any)
	if ann["user"] != "ann" || commands["fila.stats"] != true || commands["fila.lease"] != false || ann["queues"] != "%R~jobs*" {
		t.Errorf("%.300v", ann)
	}
}

func TestASessionIsThatOfTheUser(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	got := s.login("bob", "bob")
	c := got.cookie(t)
	if got.status != 204 || c.Name != s.cookieName("") || len(c.Value) < 43 || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" ||
		c.MaxAge != int(sessionLife.Seconds()) || c.Domain != "" {
		t.Errorf("%d: %s", got.status, got.header.Get("Set-Cookie"))
	}
	if got := s.run(200, "ACL WHOAMI", in(c)); got != `"bob"` {
		t.Errorf("it is %s", got)
	}
	if me := s.do("GET", "/v1/session", "", in(c)).json(t); me["user"] != "bob" || me["session"] != true {
		t.Errorf("%.200v", me)
	}
	s.run(403, "ACL LIST", in(c))
	if other := s.session("bob", "bob"); s.run(200, "ACL WHOAMI", other) != `"bob"` || s.run(200, "ACL WHOAMI", in(c)) != `"bob"` {
		t.Error("one of two sessions has ended")
	}
	out := s.do("DELETE", "/v1/session", "", in(c))
	if gone := out.cookie(t); out.status != 204 || gone.MaxAge >= 0 || gone.Value != "" {
		t.Errorf("the logout: %d, %s", out.status, out.header.Get("Set-Cookie"))
	}
	s.run(401, "PING", in(c)) // stolen before
	s.run(401, "PING", in(&http.Cookie{Name: s.cookieName(""), Value: "guessed"}))
	if got := s.do("DELETE", "/v1/session", ""); got.status != 204 {
		t.Errorf("a logout without a session: %d", got.status)
	}
}

// A page whose session ends with the broker has to wait for the broker, and not to ask for a login
// that fails.
func TestASessionThatEndsWithTheBrokerIsUnavailable(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	c := s.session("bob", "bob")
	s.broker.become(Stopping)
	s.sessions.close()
	s.run(503, "PING", c)
	s.broker.become(Running)
	s.run(401, "PING", c)
}

func TestALoginEndsTheSessionBeforeIt(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	before := s.session("bob", "bob")
	after := in(s.login("admin", "nimda", before).cookie(t))
	s.run(401, "PING", before)
	if got := s.run(200, "ACL WHOAMI", after); got != `"admin"` {
		t.Errorf("it is %s", got)
	}
}

// The tabs of a browser have one session: what a page sends for the user that it shows is not done for
// one that has logged in with another tab.
func TestAPageDoesNotActForTheUserOfAnotherTab(t *testing.T) {
	s := serve(t, newBroker(t, append(users(), "user über on nopass ~* &* +@all")...), nil)
	bob := s.session("bob", "bob")
	if got := s.run(200, "ACL WHOAMI", bob, with(userHeader, "bob")); got != `"bob"` {
		t.Errorf("it is %s", got)
	}
	s.run(200, "ACL WHOAMI", bob)
	for _, other := range []string{"ann", "bo", "bob%20", "%zz"} {
		got := s.do("POST", "/v1/command", `["ACL","WHOAMI"]`, with("Content-Type", "application/json"), bob, with(userHeader, other))
		if got.status != http.StatusConflict || got.json(t)["code"] != "OTHERUSER" {
			t.Errorf("%q: %d %s", other, got.status, got.body)
		}
	}
	if got := s.run(200, "ACL WHOAMI", s.session("über", "any"), with(userHeader, "%C3%BCber")); got != `"über"` {
		t.Errorf("it is %s", got)
	}
}

func TestAFormWithoutAPasswordIsNoAttempt(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	if got := s.do("POST", "/v1/session", `{"user":"admin"}`); got.status != 400 {
		t.Errorf("JSON: %d %s", got.status, got.body)
	}
	if got := s.do("POST", "/v1/session?user=admin&password=nimda", ""); got.status != 400 {
		t.Errorf("a password in the address, which logs show: %d", got.status)
	}
	if got := s.login("admin", "nimda"); got.status != 204 {
		t.Errorf("behind these: %d %s", got.status, got.body)
	}
}

// With TLS, here or in a proxy, the cookie goes over TLS and to this host only.
func TestTheCookieIsForTLSWhereThereIsTLS(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	c := s.login("bob", "bob", with("X-Forwarded-Proto", "https")).cookie(t)
	if c.Name != s.cookieName("__Host-") || !c.Secure || c.Path != "/" || c.Domain != "" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("behind a proxy: %+v", c)
	}
	r := httptest.NewRequest("GET", "https://localhost/", nil)
	if got := cookie(r, "x", 1); got.Name != "__Host-fila-session" || !got.Secure {
		t.Errorf("with TLS: %+v", got)
	}
}

// What closes the connections of a user ends its sessions: also where a user of the same name
// comes at once.
func TestASessionEndsWithItsUser(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	admin := as("admin", "nimda")
	for name, command := range map[string]string{
		"deleted": "ACL DELUSER bob", "closed": "CLIENT KILL USER bob", "off": "ACL SETUSER bob off",
	} {
		stolen := s.session("bob", "bob")
		s.run(200, "ACL WHOAMI", stolen)
		s.run(200, command, admin)
		if name == "off" {
			s.run(401, "ACL WHOAMI", stolen)
		}
		s.run(200, "ACL SETUSER bob on >bob ~jobs* +@all -@dangerous", admin)
		s.run(401, "ACL WHOAMI", stolen)
	}
	testkit.Eventually(t, "no session is left", func() bool {
		s.sessions.mu.Lock()
		defer s.sessions.mu.Unlock()
		return len(s.sessions.all) == 0
	})
}

func TestUserAndAddressOfARequestAreShown(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	session := s.session("admin", "nimda")
	s.run(200, "FILA.QUEUE CREATE jobs", session)
	list := s.run(200, "CLIENT LIST", session)
	for _, want := range []string{" name=fila-session ", " name=fila-admin ", " user=admin ", " addr=127.0.0.1:", " laddr=" + s.addr + " "} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in %s", want, list)
		}
	}
	audit := ""
	for line := range strings.Lines(s.broker.log.String()) {
		if strings.Contains(line, `"audit"`) {
			audit = line
		}
	}
	for _, want := range []string{`"user":"admin"`, `"command":"FILA.QUEUE CREATE"`, `"addr":"127.0.0.1:`, `"queue":"jobs"`} {
		if !strings.Contains(audit, want) {
			t.Errorf("%s is not in the audit log: %s", want, audit)
		}
	}
	s.run(403, "FILA.LEASE jobs", as("ann", "nna"))
	s.do("GET", "/v1/session", "", as("bob", "guess"))
	denied := s.run(200, "ACL LOG", session)
	for _, want := range []string{`"username":"ann"`, `"object":"fila.lease"`, "addr=127.0.0.1:", `"username":"bob"`, `"reason":"auth"`} {
		if !strings.Contains(denied, want) {
			t.Errorf("%s is not in ACL LOG: %s", want, denied)
		}
	}
}

func TestACertificateMakesTheUser(t *testing.T) {
	chain := func(name string) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
	}
	for _, x := range []struct {
		on   bool
		name string
		want string // the user; empty: none
	}{{true, "bob", "bob"}, {true, "nobody", ""}, {true, "", ""}, {false, "bob", ""}, {true, "default", ""}} {
		s := serve(t, newBroker(t, users()...), func(c *Config) { c.CertificateUsers = x.on })
		r := httptest.NewRequest("GET", "https://localhost/", nil)
		r.RemoteAddr, r.TLS = "10.0.0.1:1", chain(x.name)
		c, err := s.open(r)
		got := ""
		if err == nil {
			me, err := c.whoAmI(t.Context())
			if err != nil {
				t.Error(err)
			}
			got = me.user
			c.Close()
		} else if reason(err).status != 401 {
			t.Errorf("%+v: %v", x, err)
		}
		if got != x.want {
			t.Errorf("%+v: it is %q", x, got)
		}
	}
}

// ended is a connection that counts its ends.
type ended struct{ times int }

func (e *ended) Close() error { e.times++; return nil }

func TestASessionEndsWhenItIsIdleOrOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sessions
		idle, old := new(ended), new(ended)
		unused := all.begin("bob", idle, nil)
		used := all.begin("ann", old, nil)
		began := time.Now()
		time.Sleep(sessionIdle - 1)
		synctest.Wait()
		if idle.times != 0 {
			t.Fatal("it has ended early")
		}
		if s := all.find(used); s == nil || s.user != "ann" {
			t.Fatal("it is not found")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if idle.times != 1 || all.find(unused) != nil {
			t.Errorf("idle for %s it has ended %d times", time.Since(began), idle.times)
		}
		for all.find(used) != nil {
			time.Sleep(sessionIdle / 2)
		}
		synctest.Wait()
		if lived := time.Since(began); old.times != 1 || lived < sessionLife || lived > sessionLife+sessionIdle {
			t.Errorf("one that is used has lived for %s, and ended %d times", lived, old.times)
		}
		if len(all.all) != 0 {
			t.Errorf("%d are left", len(all.all))
		}
	})
}

func TestTheSessionThatIsUnusedForLongestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sessions
		var tokens []string
		for range sessionsMax {
			tokens = append(tokens, all.begin("bob", new(ended), nil))
			time.Sleep(time.Second)
		}
		all.find(tokens[0])
		if len(all.all) != sessionsMax {
			t.Fatalf("%d sessions, want %d", len(all.all), sessionsMax)
		}
		all.begin("ann", new(ended), nil)
		if len(all.all) != sessionsMax || all.find(tokens[1]) != nil || all.find(tokens[0]) == nil {
			t.Errorf("%d sessions", len(all.all))
		}
		slices.Sort(tokens)
		if len(slices.Compact(tokens)) != sessionsMax {
			t.Error("two have the same token")
		}
		all.close()
		if len(all.all) != 0 {
			t.Error("some are left")
		}
	})
}

func TestHealth(t *testing.T) {
	b := newBroker(t, users()...)
	s := serve(t, b, nil)
	for state, want := range map[State][2]int{Recovering: {200, 503}, Running: {200, 200}, ReadOnly: {200, 503}, Stopping: {200, 503}, Stuck: {503, 503}} {
		b.become(state)
		for i, path := range []string{"/healthz", "/readyz"} {
			if got := s.do("GET", path, ""); got.status != want[i] || got.body != string(state)+"\n" {
				t.Errorf("%s, %s: %d %q", state, path, got.status, got.body)
			}
		}
	}
}

func TestMetricsAreForThoseThatMayReadThem(t *testing.T) {
	b := newBroker(t, users()...)
	if got := serve(t, b, nil).do("GET", "/metrics", "", as("admin", "nimda")); got.status != 404 {
		t.Errorf("without any: %d", got.status)
	}
	s := serve(t, b, func(c *Config) {
		c.Metrics = func(h http.Header) (format, contentType string) { return "OPENMETRICS", "of " + h.Get("Accept") }
	})
	if got := s.do("GET", "/metrics", ""); got.status != 401 {
		t.Errorf("without credentials: %d %s", got.status, got.body)
	}
	if got := s.do("GET", "/metrics", "", as("ann", "nna")); got.status != 403 {
		t.Errorf("without the right: %d %s", got.status, got.body)
	}
	if got := s.do("GET", "/metrics", "", as("admin", "nimda")); got.status != 200 || !strings.HasSuffix(got.body, "\n# EOF\n") {
		t.Errorf("with the right: %d %.200s", got.status, got.body)
	}
}

// The users for operators are those of docs/how-to/security.md, word for word.
func TestTheUsersForOperatorsMayDoWhatTheDocumentSays(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("## Operators"))
	text, _, _ = bytes.Cut(text, []byte("## Rights"))
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, `"user `) {
			lines = append(lines, strings.ReplaceAll(strings.Trim(line, `",`), "#<SHA-256>", ">p"))
		}
	}
	if len(lines) != 4 {
		t.Fatalf("the document has %q", lines)
	}
	s := serve(t, newBroker(t, lines...), nil)
	viewer, operator, admin := as("viewer", "p"), as("operator", "p"), as("admin", "p")
	s.run(200, "FILA.QUEUE CREATE jobs", operator)
	s.run(200, "FILA.ENQUEUE jobs x", operator)
	for _, x := range []struct {
		command                 string
		viewer, operator, admin int
	}{
		{"FILA.QUEUE LIST", 200, 200, 200},
		{"FILA.QUEUE INFO jobs", 200, 200, 200},
		{"FILA.STATS jobs", 200, 200, 200},
		{"FILA.STATS", 200, 200, 200},
		{"FILA.KEYS jobs", 200, 200, 200},
		{"FILA.EXPLAIN jobs KEY x", 200, 200, 200},
		{"FILA.BROWSE jobs", 200, 200, 200},
		{"FILA.THROTTLE LIST", 200, 200, 200},
		{"FILA.SCRIPT LIST", 200, 200, 200},
		{"FILA.CRON LIST", 200, 200, 200},
		{"FILA.WHOAMI", 200, 200, 200},
		{"CLIENT LIST", 200, 200, 200},
		{"INFO", 200, 200, 200},
		{"FILA.ENQUEUE jobs x", 403, 200, 200},
		{"FILA.LEASE jobs", 403, 200, 200},
		{"FILA.QUEUE PAUSE jobs", 403, 200, 200},
		{"FILA.QUEUE RESUME jobs", 403, 200, 200},
		{"FILA.KEY SET jobs x WEIGHT 2", 403, 200, 200},
		{"FILA.PURGE jobs", 403, 200, 200},
		{"FILA.REDRIVE jobs.dlq", 403, 200, 200},
		{"CLIENT KILL ID 1000000", 403, 200, 200},
		{"SLOWLOG GET", 403, 200, 200},
		{"ACL LIST", 403, 403, 200},
		{"ACL SETUSER bob on", 403, 403, 200},
		{"CONFIG SET slowlog-max-len 10", 403, 403, 200},
		{"MODULE LIST", 403, 403, 200},
		{"SHUTDOWN ABORT", 403, 403, 400},      // there is none to abort
		{"FILA.CLUSTER STATUS", 400, 400, 400}, // there is no cluster
		{"FILA.CLUSTER VERIFY", 403, 403, 400},
		{"FILA.CLUSTER REMOVE c", 403, 403, 400},
	} {
		s.run(x.viewer, x.command, viewer)
		s.run(x.operator, x.command, operator)
		s.run(x.admin, x.command, admin)
	}
	for _, user := range []option{viewer, operator, admin} {
		for _, path := range []string{"/v1/live?queue=jobs", "/v1/live", "/v1/events?channel=fila:jobs:dead", "/v1/events?pattern=fila:*:dead"} {
			resp := s.send("GET", path, "", user)
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
		}
	}
}

// Browsers send the cookies of a host to all of its ports.
func TestABrowserIsLoggedIntoTwoBrokersOfAHost(t *testing.T) {
	one, two := serve(t, newBroker(t, users()...), nil), serve(t, newBroker(t, users()...), nil)
	first, second := one.session("admin", "nimda"), two.session("bob", "bob")
	if got := one.run(200, "ACL WHOAMI", first, second); got != `"admin"` {
		t.Errorf("the first says %s", got)
	}
	if got := two.run(200, "ACL WHOAMI", first, second); got != `"bob"` {
		t.Errorf("the second says %s", got)
	}
}
