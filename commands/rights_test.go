//go:build !race

package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

const noQueue = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n"

// restricted starts a server with queues and a user for each of the lines, on a
// connection of its name.
func restricted(t *testing.T, lines ...string) *server {
	t.Helper()
	s := newServer(t, func(c *Config) { c.Users = lines })
	for _, q := range []string{"a", "b"} {
		if got := s.do(t, "FILA.QUEUE", "CREATE", q); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	for _, line := range lines {
		name := strings.Fields(line)[1]
		if got := s.connect(name).do("AUTH", name, "x"); got != "+OK\r\n" {
			t.Fatal(name, got)
		}
	}
	return s
}

// TestWhatACommandNeeds is the table of docs/how-to/security.md.
func TestWhatACommandNeeds(t *testing.T) {
	s := restricted(t, "user reader on nopass %R~a +@all", "user writer on nopass %W~a +@all", "user both on nopass ~a +@all", "user none on nopass ~zz +@all")
	const r, w, both, either = "reader both", "writer both", "both", "reader writer both"
	id := "0198f5b0-6b1a-7000-8000-000000000000"
	for command, who := range map[string]string{
		"FILA.ENQUEUE a x": w,
		"FILA.LEASE a":     r, "FILA.MLEASE 1 a": r, "FILA.ACK a " + id: r, "FILA.NACK a " + id: r, "FILA.EXTEND a " + id + " 5": r, "FILA.RELEASE a " + id: r,
		"FILA.REDRIVE a": r, "FILA.REDRIVE a TO a": both, "FILA.REDRIVE a TO b": "",
		"FILA.STATS a": either, "FILA.KEYS a": either, "FILA.EXPLAIN a " + id: either, "FILA.QUEUE INFO a": either, "FILA.KEY GET a k": either,
		"FILA.SCRIPT GET a ON_ENQUEUE": either, "FILA.SCRIPT LIST a": either, "FILA.SCRIPT STATS a": either, "FILA.SCRIPT TEST a ON_ENQUEUE": either,
		"FILA.QUEUE CREATE a": "", "FILA.QUEUE CREATE a NODLQ": both, "FILA.QUEUE CREATE a DLQ b": "", "FILA.QUEUE CREATE a DLQ a": both,
		"FILA.QUEUE ALTER a TTL 5": both, "FILA.QUEUE ALTER a DLQ b": "", "FILA.QUEUE ALTER a NODLQ": both, "FILA.QUEUE DELETE b": "",
		"FILA.KEY SET a k WEIGHT 1": both, "FILA.KEY PAUSE a k": both, "FILA.KEY RESUME a k": both, "FILA.KEY DEL a k": both,
		"FILA.SCRIPT LOAD a ON_ENQUEUE x": both, "FILA.SCRIPT DEL a ON_ENQUEUE": both,
		"FILA.MLEASE 2 a b": "", "FILA.MLEASE 2 b a": "", "FILA.MLEASE 2 a a": r,
		"FILA.GET a " + id: r, "FILA.BROWSE a": r, "FILA.CANCEL a " + id: both, "FILA.RESCHEDULE a " + id + " 0": both, "FILA.PURGE a": both,
		"FILA.QUEUE PAUSE a": both, "FILA.QUEUE RESUME a": both, "FILA.CRON SET c a @daily x": w, "TYPE a": either, "MEMORY USAGE a": either,
		"FILA.STATS": "reader writer both none", "DBSIZE": "reader writer both none", "FILA.THROTTLE LIST": "reader writer both none",
	} {
		for _, user := range []string{"reader", "writer", "both", "none"} {
			got := s.connect(user).do(strings.Fields(command)...)
			want := slices.Contains(strings.Fields(who), user)
			if allowed := got != noQueue; allowed != want {
				t.Errorf("%s: %s: allowed is %v, got %q", user, command, allowed, got)
			}
			if strings.HasPrefix(got, "-ERR") {
				t.Errorf("%s: %s: %s", user, command, got)
			}
		}
	}
}

func TestListingsShowWhatTheUserHasARightTo(t *testing.T) {
	s := restricted(t, "user writer on nopass %W~a +@all", "user all on nopass ~* +@all -acl")
	for _, q := range []string{"a", "b"} {
		if got := s.do(t, "FILA.SCRIPT", "LOAD", q, "ON_ENQUEUE", "function on_enqueue(m) return {} end"); got[0] != '$' {
			t.Fatal(got)
		}
	}
	for _, command := range [][]string{{"FILA.QUEUE", "LIST"}, {"FILA.SCRIPT", "LIST"}} {
		if got := s.connect("writer").do(command...); !strings.Contains(got, "$1\r\na\r\n") || strings.Contains(got, "$1\r\nb\r\n") {
			t.Errorf("%s: writer sees %q", command, got)
		}
		if got := s.connect("all").do(command...); !strings.Contains(got, "$1\r\nb\r\n") {
			t.Errorf("%s: all sees %q", command, got)
		}
	}
}

// A recurring message belongs to its queue: its name gives no access to it.
func TestRecurringMessagesAreThoseOfTheirQueue(t *testing.T) {
	s := restricted(t, "user writer on nopass %W~a +@all", "user reader on nopass %R~b +@all")
	set := func(c *fakeConn, name, queue string) string {
		return c.do("FILA.CRON", "SET", name, queue, "@hourly", "x")
	}
	writer, reader, all := s.connect("writer"), s.connect("reader"), s.connect("")
	for _, x := range []struct{ got, want string }{
		{set(all, "tick", "b"), "+OK\r\n"},
		{set(writer, "tock", "a"), "+OK\r\n"},
		{set(writer, "tack", "b"), noQueue},
		{set(writer, "tick", "a"), noQueue},
		{writer.do("FILA.CRON", "DEL", "tick"), noQueue},
		{writer.do("FILA.CRON", "GET", "tick"), noQueue},
		{writer.do("FILA.CRON", "GET", "nosuch"), "$-1\r\n"},
		{set(reader, "tick", "b"), noQueue},
		{reader.do("FILA.CRON", "DEL", "tick"), noQueue},
		{writer.do("FILA.CRON", "DEL", "tock"), ":1\r\n"},
	} {
		if x.got != x.want {
			t.Errorf("got %q, want %q", x.got, x.want)
		}
	}
	if got := writer.do("FILA.CRON", "LIST"); strings.Contains(got, "tick") {
		t.Errorf("it is listed: %q", got)
	}
	for _, command := range []string{"LIST", "GET tick"} {
		if got := reader.do(strings.Fields("FILA.CRON " + command)...); !strings.Contains(got, "@hourly") {
			t.Errorf("%s: %q", command, got)
		}
	}
}

// A message that comes after a client has lost the right to it goes to another client,
// even if the wait could not be ended in time.
func TestALeaseThatWaitedAsksForTheRightAgain(t *testing.T) {
	s := restricted(t, "user worker on nopass ~a +@all")
	c := s.connect("worker")
	c.send([]string{"FILA.LEASE", "a", "BLOCK", "0"})
	if _, err := s.handler.users.Set("worker", []string{"resetkeys"}); err != nil { // without notifying the engine
		t.Fatal(err)
	}
	s.do(t, "FILA.ENQUEUE", "a", "hello")
	if got := c.received(); !strings.HasPrefix(got, "-NOPERM the rights of this user were changed") {
		t.Errorf("got %q", got)
	}
	if got := printed(t, s.do(t, "FILA.LEASE", "a")); !strings.Contains(got, `"hello"`) || !strings.Contains(got, "5) (integer) 1") {
		t.Errorf("the message is there for others, and has not failed: %s", got)
	}
}

func TestATransactionIsNoWayAround(t *testing.T) {
	s := restricted(t, "user worker on nopass ~a +@all")
	c := s.connect("worker")
	const queued, allowed = "+QUEUED\r\n", "*1\r\n$36\r\n"
	c.do("MULTI")
	if got := c.do("FILA.ENQUEUE", "a", "x"); got != queued {
		t.Fatal(got)
	}
	if got := c.do("FILA.ENQUEUE", "b", "x"); got != noQueue {
		t.Errorf("refused when it is queued: %q", got)
	}
	if got := c.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT") {
		t.Errorf("got %q", got)
	}
	c.do("MULTI")
	c.do("FILA.ENQUEUE", "a", "x")
	c.do("FILA.QUEUE", "ALTER", "a", "TTL", "5000")
	s.do(t, "ACL", "SETUSER", "worker", "resetkeys", "~b")
	if got := c.do("EXEC"); got != "*2\r\n"+noQueue+noQueue {
		t.Errorf("the right was taken away before EXEC: %q", got)
	}
	s.do(t, "ACL", "SETUSER", "worker", "~a", "-exec")
	c.do("MULTI")
	c.do("FILA.ENQUEUE", "a", "x")
	if got := c.do("EXEC"); got != "-NOPERM this user has no permissions to run the 'exec' command\r\n" {
		t.Errorf("got %q", got)
	}
	if got := s.do(t, "FILA.LEASE", "a"); got != "*0\r\n" {
		t.Errorf("something was enqueued: %q", got)
	}
	if got := printed(t, s.do(t, "ACL", "LOG")); !strings.Contains(got, `"multi"`) {
		t.Errorf("the log does not say that it was in a transaction:\n%s", got)
	}
	s.do(t, "ACL", "SETUSER", "worker", "+exec")
	c.do("DISCARD")
	c.do("MULTI")
	c.do("FILA.ENQUEUE", "a", "x")
	if got := c.do("EXEC"); !strings.HasPrefix(got, allowed) {
		t.Errorf("got %q", got)
	}
	c.do("MULTI")
	s.do(t, "ACL", "DELUSER", "worker")
	if got := c.do("EXEC"); got != "" || !c.closed {
		t.Errorf("the user is gone: %q", got)
	}
}

func TestChangedRulesEndTheWait(t *testing.T) {
	s := restricted(t, "user worker on nopass ~a +@all", "user other on nopass ~a +@all")
	waits, stays := s.connect("worker"), s.connect("other")
	waits.send([]string{"FILA.LEASE", "a", "BLOCK", "0"})
	stays.send([]string{"FILA.LEASE", "a", "BLOCK", "0"})
	if got := s.do(t, "ACL", "SETUSER", "worker", "~b"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := waits.received(); got != "*0\r\n" {
		t.Errorf("got %q", got)
	}
	if got := stays.received(); got != "" {
		t.Errorf("another user's lease has ended: %q", got)
	}
}

func TestADeletedUsersConnectionsAreClosed(t *testing.T) {
	s := restricted(t, "user worker on nopass ~a +@all", "user other on nopass ~a +@all")
	waits, quiet, other := s.connect("worker"), s.connect("quiet"), s.connect("other")
	waits.send([]string{"FILA.LEASE", "a", "BLOCK", "0"})
	quiet.do("AUTH", "worker", "x")
	if got := quiet.do("ACL", "DELUSER", "worker"); got != ":1\r\n" {
		t.Errorf("whoever deletes itself is told: %q", got)
	}
	if !waits.closed || !quiet.closed || other.closed {
		t.Errorf("closed: %v %v, another's: %v", waits.closed, quiet.closed, other.closed)
	}
	s.do(t, "FILA.ENQUEUE", "a", "hello")
	if got := s.do(t, "FILA.LEASE", "a"); !strings.Contains(got, "hello") {
		t.Errorf("the message went to a user that is gone: %q", got)
	}
}

func TestWhoMayNotListenAnyMoreIsClosed(t *testing.T) {
	s := restricted(t, "user hears on nopass &fila:* +@all", "user sees on nopass &* +@all", "user stays on nopass &fila:a:* &fila:b:* +@all")
	hears, sees, stays := s.connect("hears"), s.connect("sees"), s.connect("stays")
	if got := hears.do("SUBSCRIBE", "other"); got != "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n" {
		t.Errorf("got %q", got)
	}
	if got := hears.do("PSUBSCRIBE", "*"); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("a pattern that is not the user's own: %q", got)
	}
	for c, command := range map[*fakeConn]string{hears: "SUBSCRIBE fila:b:dead", sees: "MONITOR", stays: "SUBSCRIBE fila:a:dead"} {
		if got := c.do(strings.Fields(command)...); strings.HasPrefix(got, "-") || got == "" {
			t.Fatalf("%s: %q", command, got)
		}
	}
	for user, rules := range map[string]string{"hears": "resetchannels &fila:a:*", "sees": "-monitor", "stays": "resetchannels &fila:a:*"} {
		if got := s.do(t, append([]string{"ACL", "SETUSER", user}, strings.Fields(rules)...)...); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	if !hears.closed || !sees.closed || stays.closed {
		t.Errorf("closed: %v, %v, and who still may: %v", hears.closed, sees.closed, stays.closed)
	}
}

// The connection of a user that was deleted the moment it authenticated may not
// have been there to be closed.
func TestADeletedUserCanDoNothing(t *testing.T) {
	s := restricted(t, "user worker on nopass ~* +@all")
	c := s.connect("worker")
	if _, err := s.handler.users.Delete([]string{"worker"}); err != nil {
		t.Fatal(err)
	}
	if got := c.do("FILA.QUEUE", "LIST"); !strings.HasPrefix(got, "-NOAUTH") || !c.closed {
		t.Errorf("got %q, closed: %v", got, c.closed)
	}
}

func TestRulesAreTheUsersAlsoWhenItWasMadeAnew(t *testing.T) {
	s := restricted(t, "user worker on nopass ~a +@all")
	c := s.connect("worker")
	s.do(t, "ACL", "DELUSER", "worker")
	s.do(t, "ACL", "SETUSER", "worker", "on", "nopass", "~*", "+@all")
	if got := c.do("FILA.QUEUE", "LIST"); got != "" || !c.closed {
		t.Errorf("a connection of the old user is still there: %q", got)
	}
}

func TestLoadOfTheFileReachesConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.acl")
	file := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file("user kept on nopass ~* +@all\nuser changed on nopass ~* +@all\nuser gone on nopass ~* +@all\n")
	s := newServer(t, func(c *Config) { c.ACLFile = path })
	for _, u := range []string{"kept", "changed", "gone"} {
		s.connect(u).do("AUTH", u, "x")
	}
	s.do(t, "FILA.QUEUE", "CREATE", "a")
	s.connect("kept").send([]string{"FILA.LEASE", "a", "BLOCK", "0"})
	file("user kept on nopass ~* +@all\nuser changed on nopass ~b +@all\n")
	if got := s.do(t, "ACL", "LOAD"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := s.connect("kept").received(); got != "" || s.connect("kept").closed {
		t.Errorf("nothing has changed for it, got %q", got)
	}
	if got := s.connect("changed").do("FILA.LEASE", "a"); got != noQueue {
		t.Errorf("got %q", got)
	}
	if !s.connect("gone").closed {
		t.Error("it is not in the file any more")
	}
	file("nonsense")
	if got := s.do(t, "ACL", "LOAD"); !strings.HasPrefix(got, "-ERR "+path+", line 1:") {
		t.Errorf("got %q", got)
	}
	s.do(t, "ACL", "SETUSER", "late", "on", ">pw")
	if got := s.do(t, "ACL", "SAVE"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "user late on #") || !strings.Contains(string(text), "user default on nopass") {
		t.Errorf("%s %v", text, err)
	}
}

func TestGuessingClosesTheConnection(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Password = "s3cret" })
	c := s.connect("guesser")
	n := 0
	for ; !c.closed && n < 100; n++ {
		if got := c.do("AUTH", "guess"); !strings.HasPrefix(got, "-WRONGPASS") {
			t.Fatalf("got %q", got)
		}
	}
	if n != authFailuresMax {
		t.Errorf("closed after %d failures, want %d", n, authFailuresMax)
	}
	if got := s.connect("next").do("AUTH", "s3cret"); got != "+OK\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestDenialsAreInTheLog(t *testing.T) {
	s := restricted(t, "user worker on nopass %R~a resetchannels +@consume")
	c := s.connect("worker")
	c.do("FILA.ENQUEUE", "a", "payload")
	c.do("FILA.LEASE", "b")
	c.do("FILA.LEASE", "b")
	c.do("AUTH", "worker2", "s3cret")
	s.Advance(90 * time.Second)
	got := printed(t, s.do(t, "ACL", "LOG"))
	for _, want := range []string{
		`"count"`, `"auth"`, `"AUTH"`, `"worker2"`, `"command"`, `"fila.enqueue"`, `"key"`, `"b"`, `"toplevel"`, `user=worker`, `"age-seconds"`, `"90"`, "(integer) 2",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	for _, secret := range []string{"s3cret", "payload"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is told in\n%s", secret, got)
		}
	}
	for command, want := range map[string]string{"ACL LOG 1": "*1\r\n", "ACL LOG 0": "*0\r\n", "ACL LOG -1": "*0\r\n", "ACL LOG x": "-ERR value", "ACL LOG 1 2": "-ERR wrong"} {
		if got := s.do(t, strings.Fields(command)...); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q", command, got)
		}
	}
	if s.do(t, "ACL", "LOG", "reset") != "+OK\r\n" || s.do(t, "ACL", "LOG") != "*0\r\n" {
		t.Error("not forgotten")
	}
}

func TestAdministrationIsLoggedWithoutSecrets(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, func(c *Config) { c.Log = zerolog.New(&log) })
	s.do(t, "ACL", "SETUSER", "bob", "on", ">s3cret", "~*", "+@all")
	s.connect("b").do("AUTH", "bob", "s3cret")
	s.connect("b").do("FILA.QUEUE", "CREATE", "orders")
	s.connect("b").do("FILA.ENQUEUE", "orders", "p4yload")
	s.connect("b").do("FILA.CONFIG", "SET", "k", "s3cret")
	s.connect("b").do("MULTI")
	s.connect("b").do("FILA.QUEUE", "DELETE", "orders")
	s.connect("b").do("EXEC")
	s.connect("b").do("CLIENT", "LIST")
	s.connect("b").do("ACL", "LIST")
	s.connect("b").do("AUTH", "bob", "s3cret2")
	got := log.String()
	for _, want := range []string{
		`"command":"ACL SETUSER","user":"default"`, `"command":"FILA.QUEUE CREATE","user":"bob"`, `"queue":"orders"`, `"command":"FILA.CONFIG SET"`,
		`"addr":"127.0.0.1:`, `"message":"audit"`, "failed to authenticate",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "FILA.QUEUE DELETE"); n != 1 {
		t.Errorf("what is queued and executed is logged %d times", n)
	}
	for _, wrong := range []string{"s3cret", "p4yload", "CLIENT LIST", "ACL LIST", "ENQUEUE"} {
		if strings.Contains(got, wrong) {
			t.Errorf("%s is in\n%s", wrong, got)
		}
	}
}

func TestFailuresDoNotFloodTheLog(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, func(c *Config) { c.Password, c.Log = "s3cret", zerolog.New(&log) })
	for range 20 {
		c := s.connect("guesser")
		c.do("AUTH", "guess")
		delete(s.conns, "guesser")
		c.gone()
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
	s.Advance(time.Minute)
	s.connect("late").do("AUTH", "guess")
	if got := log.String(); !strings.Contains(got, `"times":20`) {
		t.Errorf("they are not counted: %s", got)
	}
}

func TestACertificateMakesTheUser(t *testing.T) {
	s := newServer(t, func(c *Config) {
		c.Password, c.CertificateUsers = "s3cret", true
		c.Users = []string{"user robot on ~* +@all", "user retired off ~* +@all"}
	})
	for name, want := range map[string]string{"robot": "$5\r\nrobot\r\n", "retired": "-NOAUTH", "stranger": "-NOAUTH", "": "-NOAUTH", "default": "$7\r\ndefault\r\n"} {
		c := &fakeConn{server: s, id: uint64(len(s.conns) + 1), created: s.Now(), certificate: name}
		c.session = s.handler.open(c)
		s.conns["cert "+name] = c
		if got := c.do("ACL", "WHOAMI"); !strings.HasPrefix(got, want) {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
		if got := c.do("RESET"); got != "+RESET\r\n" {
			t.Error(got)
		}
		if got := c.do("ACL", "WHOAMI"); !strings.HasPrefix(got, want) {
			t.Errorf("after RESET %q is %q, want %q", name, got, want)
		}
	}
}

// What another part of the process vouches for counts without a password, and where the user
// is gone or off nothing takes its place, not even a default user that needs none.
func TestALocalConnectionSpeaksForItsUserOrForNone(t *testing.T) {
	for _, password := range []string{"", "s3cret"} {
		s := newServer(t, func(c *Config) {
			c.Password = password
			c.Users = []string{"user ops on >0ps ~* +@all", "user retired off ~* +@all"}
		})
		for name, want := range map[string]string{"ops": "$3\r\nops\r\n", "default": "$7\r\ndefault\r\n", "retired": "-NOAUTH", "stranger": "-NOAUTH"} {
			c := &fakeConn{server: s, id: uint64(len(s.conns) + 1), created: s.Now(), localUser: name}
			c.session = s.handler.open(c)
			s.conns["local "+name] = c
			for range 2 {
				if got := c.do("ACL", "WHOAMI"); !strings.HasPrefix(got, want) {
					t.Errorf("with the password %q, %q is %q, want %q", password, name, got, want)
				}
				if got := c.do("RESET"); got != "+RESET\r\n" {
					t.Error(got)
				}
			}
			if got := c.do("AUTH", "ops", "0ps"); got != "+OK\r\n" {
				t.Errorf("%q cannot authenticate: %q", name, got)
			}
		}
	}
}

func TestEveryUserMaySeeItsOwnRights(t *testing.T) {
	s := newServer(t, func(c *Config) {
		c.Users = []string{"user bob on >b0b %R~jobs* &fila:jobs:*", "user ann on >4nn ~* +fila.lease +acl|whoami"}
	})
	c := s.connect("bob")
	c.do("AUTH", "bob", "b0b")
	if got := c.do("ACL", "WHOAMI"); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("bob may run more than expected: %q", got)
	}
	got := c.do("FILA.WHOAMI")
	for _, want := range []string{"user\r\n$3\r\nbob", "fila.lease\r\n:0\r\n", "fila.whoami\r\n:1\r\n", "acl|whoami\r\n:0\r\n", "%R~jobs*", "&fila:jobs:*"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	c = s.connect("ann")
	c.do("AUTH", "ann", "4nn")
	got = c.do("FILA.WHOAMI")
	for _, want := range []string{"fila.lease\r\n:1\r\n", "fila.ack\r\n:0\r\n", "acl|whoami\r\n:1\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}

func TestUsersThatCannotBeStopTheStart(t *testing.T) {
	_, err := New(Config{Now: time.Now, Users: []string{"user x +nosuch"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "auth.users, line 1: user x: rule '+nosuch'") {
		t.Errorf("got %v", err)
	}
}

// TestWhatBudgetsAndSignalsNeed is what docs/how-to/security.md says about categories and subcommands.
func TestWhatBudgetsAndSignalsNeed(t *testing.T) {
	s := restricted(t,
		"user reader on nopass +@read", "user worker on nopass ~a +@consume", "user producer on nopass ~a +@produce", "user safe on nopass ~a +@all -@dangerous",
		"user admin on nopass +@admin", "user operator on nopass ~a +@fila", "user billing on nopass +fila.budget|credit +fila.budget|get +fila.budget|history",
		"user seller on nopass +@fila -fila.budget|charge")
	const reads, changes, sells = "reader safe operator seller", "admin operator", "seller"
	for _, c := range []struct{ command, allowed string }{
		{"FILA.BUDGET SET acme", changes + " " + sells},
		{"FILA.BUDGET CREDIT acme 10", changes + " billing " + sells},
		{"FILA.BUDGET CHARGE acme 1", changes},
		{"FILA.BUDGET GET acme", reads + " billing"},
		{"FILA.BUDGET LIST", reads},
		{"FILA.BUDGET HISTORY acme", reads + " billing"},
		{"FILA.ENQUEUE a x BUDGET acme CHARGE 1", "producer safe operator"},
		{"FILA.ACK a 0198f5b0-6b1a-7000-8000-000000000000:1 USED 1", "worker safe operator"},
		{"FILA.SIGNAL ADD acme pages", "worker safe operator seller"},
		{"FILA.SIGNAL GET acme", reads},
		{"FILA.SIGNAL LIST", reads},
		{"FILA.SIGNAL DEL acme", changes + " " + sells},
		{"FILA.BUDGET DEL nosuch", changes + " " + sells},
		{"FILA.AUDIT", changes + " " + sells},
	} {
		for _, user := range []string{"reader", "worker", "producer", "safe", "admin", "operator", "billing", "seller"} {
			got := s.connect(user).do(strings.Fields(c.command)...)
			allowed, want := !strings.HasPrefix(got, "-NOPERM"), slices.Contains(strings.Fields(c.allowed), user)
			if allowed != want || allowed && strings.HasPrefix(got, "-") {
				t.Errorf("%s: %s: allowed is %v, want %v: %q", user, c.command, allowed, want, got)
			}
		}
	}
}
