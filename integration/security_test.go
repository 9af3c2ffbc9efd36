package integration_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// secured is a broker with TLS, users and client certificates, and without a plaintext port.
type secured struct {
	*harness.Broker
	ca, other *authority
	addr      string
}

func startSecured(t *testing.T, args ...string) *secured {
	t.Helper()
	s := &secured{ca: newAuthority(t), other: newAuthority(t)}
	now := time.Now()
	before, after := now.Add(-time.Hour), now.Add(time.Hour)
	s.ca.issue(t, "server", "fila", before, after)
	s.ca.issue(t, "robot", "robot", before, after)
	s.ca.issue(t, "stranger", "stranger", before, after)
	s.ca.issue(t, "expired", "robot", before, now.Add(-time.Minute))
	s.ca.issue(t, "future", "robot", now.Add(50*time.Minute), after)
	s.other.issue(t, "robot", "robot", before, after)
	users := fmt.Sprintf(`
[auth]
users = [
  "user default off",
  "user admin on >4dmin ~* &* +@all",
  "user producer on #%x %%W~orders* +@produce +@connection +multi +exec +acl|whoami",
  "user worker on >w0rker %%R~orders* +@consume +fila.redrive +@connection +multi +exec +command",
  "user retired off >r3tired ~* +@all",
  "user robot on %%R~orders +@consume +acl|whoami",
]
`, sha256.Sum256([]byte("pr0ducer")))
	s.Broker = kit.Prepare(t, append([]string{
		"--storage.engine", "memory", "--server.listen_addr", "", "--tls.listen_addr", "127.0.0.1:0", "--tls.auth_clients_user", "cn",
		"--tls.cert_file", s.ca.file("server"), "--tls.key_file", s.ca.file("server-key"), "--tls.ca_file", s.ca.file("ca"),
	}, args...)...)
	if err := os.WriteFile(filepath.Join(s.Dir(), "fila.toml"), []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	s.addr = fmt.Sprint(kit.Launch(t, s.Broker)["tls_address"])
	return s
}

// as returns a go-redis client of a user, presenting the certificate of secure if it has one.
func (s *secured) as(t *testing.T, secure *tls.Config, user, password string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: s.addr, TLSConfig: secure, Username: user, Password: password, MaxRetries: -1, DialTimeout: testkit.Patience(), ReadTimeout: testkit.Patience(),
		DisableIdentity: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// refused fails unless a command returns this error.
func refused(t *testing.T, c *redis.Client, want string, args ...any) {
	t.Helper()
	var got any
	var err error
	testkit.Eventually(t, "no other node is taking over", func() bool {
		got, err = c.Do(t.Context(), args...).Result()
		return !kit.Loading(err)
	})
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q answers %v, %v; want %s", args, got, err, want)
	}
}

func TestEveryWayInThatIsClosed(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	shown := s.ca.client(t, "stranger") // no user of that name: a password is required
	admin := s.as(t, shown, "admin", "4dmin")
	for _, args := range [][]any{{"FILA.QUEUE", "CREATE", "orders"}, {"FILA.QUEUE", "CREATE", "mails"}, {"FILA.ENQUEUE", "mails", "x"}} {
		kit.Do(t, admin, args...)
	}
	for name, x := range map[string]struct{ user, password, want string }{
		"no password":        {"", "", "NOAUTH"},
		"wrong password":     {"producer", "wrong", "WRONGPASS"},
		"password as digest": {"producer", fmt.Sprintf("%x", sha256.Sum256([]byte("pr0ducer"))), "WRONGPASS"},
		"unknown user":       {"nobody", "pr0ducer", "WRONGPASS"},
		"disabled user":      {"retired", "r3tired", "WRONGPASS"},
		"user without one":   {"robot", "x", "WRONGPASS"},
		"default is off":     {"default", "x", "WRONGPASS"},
	} {
		c := s.as(t, shown, x.user, x.password)
		if err := c.Do(t.Context(), "FILA.QUEUE", "LIST").Err(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	producer, worker := s.as(t, shown, "producer", "pr0ducer"), s.as(t, shown, "worker", "w0rker")
	kit.Do(t, producer, "FILA.ENQUEUE", "orders", "hello")
	const noRun, noKey = "NOPERM this user has no permissions to run", "NOPERM this user has no permissions to access one of the keys"
	refused(t, producer, noKey, "FILA.ENQUEUE", "mails", "hello")
	refused(t, producer, noRun, "FILA.LEASE", "orders")
	refused(t, producer, noRun, "ACL", "SETUSER", "producer", "allkeys", "+@all")
	refused(t, producer, noRun, "ACL", "LIST")
	refused(t, producer, noRun, "CONFIG", "GET", "*")
	refused(t, producer, noRun, "FILA.QUEUE", "DELETE", "mails", "FORCE")
	refused(t, producer, noRun, "SUBSCRIBE", "fila:mails:dead")
	refused(t, producer, noRun, "MONITOR")
	refused(t, worker, noKey, "FILA.LEASE", "mails")
	refused(t, worker, noRun, "FILA.ENQUEUE", "orders", "x")
	refused(t, worker, noKey, "FILA.MLEASE", 2, "orders", "mails")
	refused(t, worker, noKey, "FILA.REDRIVE", "orders.dlq", "TO", "mails")
	refused(t, worker, noKey, "FILA.REDRIVE", "orders.dlq", "TO", "orders")
	refused(t, worker, noKey, "FILA.REDRIVE", "mails.dlq")
	for _, inside := range [][]any{{"FILA.LEASE", "mails"}, {"FILA.ENQUEUE", "orders", "x"}} {
		_, err := worker.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Do(t.Context(), "FILA.LEASE", "orders")
			p.Do(t.Context(), inside...)
			return nil
		})
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") && !strings.HasPrefix(err.Error(), "EXECABORT") {
			t.Errorf("%q in a transaction: %v", inside, err)
		}
	}
	// As in Redis, introspection describes commands without executing them; it requires its own
	// right.
	kit.Do(t, worker, "COMMAND", "GETKEYS", "FILA.ENQUEUE", "mails", "x")
	refused(t, s.as(t, s.ca.client(t, "robot"), "", ""), noRun, "COMMAND", "GETKEYS", "FILA.ENQUEUE", "mails", "x")
	got := one(t, worker, "orders")
	kit.Do(t, worker, "FILA.NACK", "orders", got.receipt, "DEAD") // the dead-letter queue was chosen by the queue's owner
	if n := kit.Do(t, admin, "DBSIZE"); n != int64(4) {
		t.Errorf("%v queues", n)
	}
	if n := kit.Mapped(t, kit.Do(t, admin, "FILA.STATS", "mails"))["ready"]; n != int64(1) {
		t.Errorf("%v messages in mails", n)
	}
	owner := s.as(t, shown, "admin", "4dmin")
	kit.Do(t, owner, "ACL", "SETUSER", "owner", "on", ">0wner", "~mine", "+@all")
	mine := s.as(t, shown, "owner", "0wner")
	refused(t, mine, noKey, "FILA.QUEUE", "CREATE", "mine", "DLQ", "mails")
	refused(t, mine, noKey, "FILA.QUEUE", "CREATE", "mine")
	kit.Do(t, mine, "FILA.QUEUE", "CREATE", "mine", "NODLQ")
	refused(t, mine, noKey, "FILA.QUEUE", "ALTER", "mine", "DLQ", "mails")
}

func TestCertificatesThatAreRefused(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	if who := kit.Do(t, s.as(t, s.ca.client(t, "robot"), "", ""), "ACL", "WHOAMI"); who != "robot" {
		t.Errorf("its certificate makes it %v", who)
	}
	refused(t, s.as(t, s.ca.client(t, "stranger"), "", ""), "NOAUTH", "ACL", "WHOAMI")
	other := s.ca.client(t, "")
	other.GetClientCertificate = s.other.client(t, "robot").GetClientCertificate
	old := s.ca.client(t, "robot")
	old.MaxVersion, old.MinVersion = tls.VersionTLS11, tls.VersionTLS10
	for name, c := range map[string]*tls.Config{
		"none": s.ca.client(t, ""), "expired": s.ca.client(t, "expired"), "not yet valid": s.ca.client(t, "future"), "unknown authority": other,
		"TLS 1.1": old, "the client does not know the server's authority": s.other.client(t, "robot"),
	} {
		err := s.as(t, c, "admin", "4dmin").Do(t.Context(), "ACL", "WHOAMI").Err()
		if err == nil || !strings.Contains(err.Error(), "tls: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlainTextOnThePortOfTLSIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	c := kit.Dial(t, s.addr)
	if _, err := io.WriteString(c, "AUTH admin 4dmin\r\nFILA.QUEUE LIST\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client in plain text waits for its answer in vain")
	}
	if got != "" && got != "-ERR this port takes TLS only\r\n" {
		t.Errorf("got %q", got)
	}
}

// With TLS a disconnect is noticed as promptly as without.
func TestAWaiterThatGoesIsSeenBehindTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	admin := s.as(t, s.ca.client(t, "stranger"), "admin", "4dmin")
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "orders")
	for name, leave := range map[string]func(c *tls.Conn) error{
		"close_notify": (*tls.Conn).Close,
		"FIN":          func(c *tls.Conn) error { return c.NetConn().Close() },
		"RST": func(c *tls.Conn) error {
			return errors.Join(c.NetConn().(*net.TCPConn).SetLinger(0), c.NetConn().Close())
		},
		"close_notify alone": (*tls.Conn).CloseWrite,
	} {
		c, err := (&tls.Dialer{Config: s.ca.client(t, "robot")}).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		waits := c.(*tls.Conn)
		if _, err := io.WriteString(waits, "FILA.LEASE orders BLOCK 0\r\n"); err != nil {
			t.Fatal(err)
		}
		kit.WantStats(t, admin, "orders", map[string]int64{"waiters": 1})
		if err := leave(waits); err != nil {
			t.Fatal(name, err)
		}
		kit.WantStats(t, admin, "orders", map[string]int64{"waiters": 0})
		waits.Close()
	}
}

func TestAUserIsRevokedWhileItWaits(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	admin := s.as(t, s.ca.client(t, "stranger"), "admin", "4dmin")
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "orders")
	worker := s.as(t, s.ca.client(t, "stranger"), "worker", "w0rker")
	ended := make(chan error, 1)
	wait := func() {
		go func() {
			ended <- worker.Do(context.WithoutCancel(t.Context()), "FILA.LEASE", "orders", "BLOCK", 0).Err()
		}()
		kit.WantStats(t, admin, "orders", map[string]int64{"waiters": 1})
	}
	wait()
	kit.Do(t, admin, "ACL", "SETUSER", "worker", "resetkeys", "%R~others")
	if err := within(t, ended); err != nil {
		t.Errorf("its lease ends empty-handed, not with %v", err)
	}
	refused(t, worker, "NOPERM", "FILA.LEASE", "orders")
	kit.Do(t, admin, "ACL", "SETUSER", "worker", "%R~orders")
	wait()
	kit.Do(t, admin, "ACL", "DELUSER", "worker")
	if err := within(t, ended); err == nil {
		t.Error("a deleted user has an answer")
	}
	if err := worker.Do(t.Context(), "FILA.LEASE", "orders").Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("got %v", err)
	}
	kit.WantStats(t, admin, "orders", map[string]int64{"waiters": 0})
}

func within(t *testing.T, ended chan error) error {
	t.Helper()
	return testkit.Receive(t, "the wait ends", ended)
}

// A new certificate applies to new clients without a restart; existing connections remain. An
// invalid certificate changes nothing.
func TestCertificatesAreReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	stays := s.as(t, s.ca.client(t, "stranger"), "admin", "4dmin").Conn()
	defer stays.Close()
	if err := stays.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		c, err := (&tls.Dialer{Config: s.ca.client(t, "robot")}).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if err := os.WriteFile(s.ca.file("server"), []byte("half a certi"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the new files are reported", func() bool {
		if got := serial(); got != first {
			t.Fatalf("the certificate is another: %s", got)
		}
		return strings.Contains(kit.Log(t, s.Broker), "the previous ones stay in effect")
	})
	s.ca.issue(t, "server", "fila", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	testkit.Eventually(t, "the certificate is replaced", func() bool { return serial() != first })
	if err := stays.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a connection was lost: %v", err)
	}
}

func TestRedisCLIComesInByTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	base := []string{"-h", host, "-p", port, "--tls", "--cacert", s.ca.file("ca")}
	cert := func(a *authority, name string) []string {
		return []string{"--cert", a.file(name), "--key", a.file(name + "-key")}
	}
	for _, x := range []struct {
		name string
		args []string
		want string
	}{
		{"certificate", append(cert(s.ca, "robot"), "ACL", "WHOAMI"), "robot"},
		{"password", append(cert(s.ca, "stranger"), "--user", "producer", "--pass", "pr0ducer", "ACL", "WHOAMI"), "producer"},
		{"wrong password", append(cert(s.ca, "stranger"), "--user", "producer", "--pass", "wrong", "ACL", "WHOAMI"), "AUTH failed"},
		{"no password", append(cert(s.ca, "stranger"), "ACL", "WHOAMI"), "NOAUTH"},
		{"not allowed", append(cert(s.ca, "robot"), "FILA.ENQUEUE", "orders", "x"), "NOPERM"},
		{"no certificate", []string{"PING"}, "rror"},
		{"expired", append(cert(s.ca, "expired"), "PING"), "rror"},
		{"another authority", append(cert(s.other, "robot"), "PING"), "rror"},
	} {
		ctx := testkit.Context(t)
		out, err := exec.CommandContext(ctx, "redis-cli", append(append([]string{}, base...), x.args...)...).CombinedOutput()
		if ctx.Err() == context.DeadlineExceeded {
			t.Errorf("%s: it hangs", x.name)
		}
		if !strings.Contains(string(out), x.want) || x.want == "rror" && strings.Contains(string(out), "PONG") {
			t.Errorf("%s: %q, %v", x.name, out, err)
		}
	}
}

func TestHealthComesInByTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	robot := []string{"--cacert", s.ca.file("ca"), "--cert", s.ca.file("robot"), "--key", s.ca.file("robot-key")}
	for _, x := range []struct {
		name, url string
		args      []string
		want      string // beginning of the error
	}{
		{"user", "filas://admin:4dmin@" + s.addr, append(robot, "--ready"), "ready\n"},
		{"certificate", "filas://" + s.addr, robot, "alive\n"},
		{"certificate without the right", "filas://" + s.addr, append(robot, "--ready"), "fila: NOPERM "},
		{"no TLS", "fila://" + s.addr, nil, "fila: "},
		{"no certificate", "filas://" + s.addr, []string{"--cacert", s.ca.file("ca")}, "fila: "},
		{"another authority", "filas://" + s.addr, []string{"--cacert", s.other.file("ca")}, "fila: no broker at " + s.addr + ": tls: "},
	} {
		cmd := exec.CommandContext(t.Context(), kit.Binary(t), append([]string{"health", "--timeout", testkit.Patience().String()}, x.args...)...)
		cmd.Env = append(os.Environ(), "FILA_URL="+x.url)
		out, err := cmd.CombinedOutput()
		if !strings.HasPrefix(string(out), x.want) || (err == nil) == strings.HasPrefix(x.want, "fila: ") {
			t.Errorf("%s: %q, %v", x.name, out, err)
		}
	}
}

// Protected mode: a broker reachable from other machines does not start unless clients must
// authenticate.
func TestAPublicAddressIsRefusedWhileItIsOpenToAll(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.issue(t, "server", "fila", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	secure := []string{"--tls.listen_addr", "0.0.0.0:0", "--tls.cert_file", ca.file("server"), "--tls.key_file", ca.file("server-key")}
	acl := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(acl, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		args []string
		env  string
		want string // empty if it starts
	}{
		"plain":                        {[]string{"--server.listen_addr", "0.0.0.0:0"}, "", "server.listen_addr 0.0.0.0:0 can be reached"},
		"password":                     {[]string{"--server.listen_addr", "0.0.0.0:0", "--auth.password", "x"}, "", ""},
		"users beside an open default": {[]string{"--server.listen_addr", "0.0.0.0:0"}, "user a on >x +@all", "can be reached"},
		"users, default off":           {[]string{"--server.listen_addr", "0.0.0.0:0"}, "user a on >x +@all\nuser default off", ""},
		"a file without users":         {[]string{"--server.listen_addr", "0.0.0.0:0", "--auth.acl_file", acl}, "", "can be reached"},
		"TLS without certificates":     {append(secure, "--tls.auth_clients", "no"), "", "tls.listen_addr 0.0.0.0:0 can be reached"},
		"TLS with optional ones":       {append(secure, "--tls.auth_clients", "optional", "--tls.ca_file", ca.file("ca")), "", "tls.listen_addr"},
		"TLS with certificates":        {append(secure, "--tls.ca_file", ca.file("ca")), "", ""},
		"TLS without an authority":     {secure, "", "tls.ca_file"},
		"a key that is not there":      {append(secure, "--tls.auth_clients", "no", "--auth.password", "x", "--tls.key_file", "nosuch.pem"), "", "nosuch.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--storage.engine", "memory", "--server.listen_addr", "127.0.0.1:0"}, x.args...)
			b := kit.Prepare(t, args...)
			b.SetEnv("FILA_AUTH__USERS=" + x.env)
			if x.want == "" {
				kit.Launch(t, b)
				return
			}
			if err := b.Start(); err != nil {
				t.Fatal(err)
			}
			if code, said := kit.Exit(t, b), kit.Log(t, b); code != 2 || !strings.Contains(said, x.want) {
				t.Errorf("exit code %d: %s", code, said)
			}
		})
	}
}

// An unauthenticated client may neither stay nor send much.
func TestStrangersAreLimited(t *testing.T) {
	t.Parallel()
	launch := func(timeout string) (addr string) {
		b := kit.Prepare(t, "--storage.engine", "memory", "--auth.password", "s3cret", "--server.auth_timeout_ms", timeout, "--server.unauthenticated_max", "3")
		kit.Launch(t, b)
		return b.Addr()
	}
	hasty, addr := launch("500"), launch("3600000")
	const late = "-ERR not authenticated in time\r\n"
	for name, x := range map[string]struct{ send, want, or string }{
		"too slow": {"PING\r\n", "-NOAUTH Authentication required.\r\n" + late, late}, // or slower yet
		"silent":   {"", late, late},
	} {
		c := kit.Dial(t, hasty)
		_, _ = io.WriteString(c, x.send) // the broker may have closed the connection
		if got, _ := io.ReadAll(c); string(got) != x.want && string(got) != x.or {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	for name, x := range map[string]struct{ send, want string }{
		"too long an argument": {"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"},
		"too many arguments":   {"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"},
		"guessing": {strings.Repeat("AUTH guess\r\n", 20),
			strings.Repeat("-WRONGPASS invalid username-password pair or user is disabled.\r\n", 8)},
	} {
		c := kit.Dial(t, addr)
		if _, err := io.WriteString(c, x.send); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c); string(got) != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	var idle []net.Conn
	for range 20 {
		c := kit.Dial(t, addr)
		idle = append(idle, c)
		if _, err := io.WriteString(c, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "-NOAUTH") {
			t.Fatalf("%q, %v", line, err) // its reply shows that it is connected, one after the other
		}
	}
	known := kit.Connect(t, addr, 3) // replaces the oldest of those
	if err := known.Do(t.Context(), "AUTH", "s3cret").Err(); err != nil {
		t.Error(err)
	}
	for _, c := range idle[:len(idle)-3] {
		if got, err := io.ReadAll(c); err == nil && len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one that was replaced got %q, %v", got, err)
		}
	}
}
