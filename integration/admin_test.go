package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// operated is a running broker with an admin listener.
type operated struct {
	*harness.Broker

	url string // ends with a slash
}

// operate starts a broker with an admin listener on a free port; fault is planted into it.
func operate(t *testing.T, fault string, args ...string) *operated {
	t.Helper()
	b := kit.Prepare(t, append([]string{"--admin.listen_addr", "127.0.0.1:0", "--storage.engine", "memory"}, args...)...)
	if fault != "" {
		bin, err := harness.Build(t.Context(), "fila-fault", ".", "-tags", "fault")
		if err != nil {
			t.Fatal(err)
		}
		b.SetBinary(bin)
		b.SetEnv("PLANTED_FAULT=" + fault)
	}
	return started(t, b)
}

// started starts a broker with an admin listener, without waiting until it serves.
func started(t *testing.T, b *harness.Broker) *operated {
	t.Helper()
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	return &operated{Broker: b, url: fmt.Sprint(kit.Logged(t, b, "admin listener")["url"])}
}

// get asks for a path and returns the status and the body.
func (o *operated) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return ask(t, http.DefaultClient, "GET", o.url+path, "", nil)
}

// command runs a command of words without spaces and returns the status and the reply.
func (o *operated) command(t *testing.T, line string) (int, string) {
	t.Helper()
	words, err := json.Marshal(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	return ask(t, http.DefaultClient, "POST", o.url+"v1/command", string(words), nil)
}

// wantHealth polls until both paths answer what they do in a state of the broker. One whose loop stands still for
// two seconds is stuck, which may be between any two questions.
func (o *operated) wantHealth(t *testing.T, state string, alive, ready int) {
	t.Helper()
	testkit.EventuallyEqual(t, "what /readyz and /healthz answer", fmt.Sprint(ready, state, alive, state), func() string {
		isReady, readyState := o.get(t, "readyz")
		isAlive, aliveState := o.get(t, "healthz")
		return fmt.Sprint(isReady, readyState, isAlive, aliveState)
	})
}

func TestHealthTellsTheStatesApart(t *testing.T) {
	t.Parallel()
	t.Run("recovering, then running", func(t *testing.T) {
		testkit.AtLength(t) // it builds a broker with a fault, as the next two do
		o := operate(t, "slow-recovery")
		o.wantHealth(t, "recovering", 200, 503)
		if status, said := o.command(t, "FILA.QUEUE LIST"); status != 503 || !strings.Contains(said, "LOADING") {
			t.Errorf("meanwhile a command is answered %d %s", status, said)
		}
		if err := os.WriteFile(filepath.Join(o.Dir(), "go-on"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		kit.Ready(t, o.Broker)
		o.wantHealth(t, "running", 200, 200)
		if status, said := o.command(t, "FILA.QUEUE LIST"); status != 200 || said != "[]" {
			t.Errorf("then a command is answered %d %s", status, said)
		}
	})
	t.Run("refusing writes", func(t *testing.T) {
		testkit.AtLength(t)
		o := operate(t, "read-only")
		kit.Ready(t, o.Broker)
		o.wantHealth(t, "running", 200, 200)
		if status, said := o.command(t, "FILA.QUEUE CREATE fail-from-here"); status != 503 || !strings.Contains(said, "MISCONF") {
			t.Errorf("a write is answered %d %s", status, said)
		}
		o.wantHealth(t, "read-only", 200, 503)
	})
	t.Run("stuck", func(t *testing.T) {
		testkit.AtLength(t)
		o := operate(t, "stuck-loop")
		kit.Ready(t, o.Broker)
		o.wantHealth(t, "running", 200, 200)
		c := kit.Dial(t, o.Addr()) // its reply never comes
		if _, err := io.WriteString(c, "FILA.QUEUE CREATE fail-from-here\r\n"); err != nil {
			t.Fatal(err)
		}
		o.wantHealth(t, "stuck", 503, 503)
		kit.Kill(t, o.Broker)
	})
	t.Run("stopping", func(t *testing.T) {
		o := operate(t, "", "--server.shutdown_timeout_ms", "3600000", "--server.write_timeout_ms", "3600000")
		kit.Ready(t, o.Broker)
		c := unread(t, o.Addr())
		kit.Signal(t, o.Broker, syscall.SIGTERM)
		o.wantHealth(t, "stopping", 200, 503)
		if status, said := o.command(t, "PING"); status != 503 || !strings.Contains(said, "LOADING") {
			t.Errorf("meanwhile a command is answered %d %s", status, said)
		}
		if err := c.Close(); err != nil { // what the stop has waited for
			t.Error(err)
		}
		if code := kit.Exit(t, o.Broker); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// unread keeps a reply from leaving, so that a stop has to wait for the end of the connection.
func unread(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c := kit.Dial(t, addr)
	const size = 30 << 20 // more than sockets hold
	if _, err := fmt.Fprintf(c, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the reply is on its way
		t.Fatal(err)
	}
	return c
}

func TestTheAdminListenerIsOffUnlessItIsAskedFor(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	kit.Stop(t, b)
	if log := kit.Log(t, b); strings.Contains(log, "admin") {
		t.Errorf("it logs %s", log)
	}
}

func TestAnAdminListenerThatCannotBeIsOneLineAndACode(t *testing.T) {
	t.Parallel()
	o := operate(t, "")
	kit.Ready(t, o.Broker)
	taken := strings.TrimSuffix(strings.TrimPrefix(o.url, "http://"), "/")
	acl := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(acl, []byte("user default on nopass ~* &* +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"port in use":        {[]string{"--admin.listen_addr", taken}, 1, []string{taken, "in use", "--admin.listen_addr"}},
		"open to all":        {[]string{"--admin.listen_addr", "0.0.0.0:0", "--admin.plain", "true"}, 2, []string{"admin.listen_addr", "auth.password"}},
		"open by the file":   {[]string{"--admin.listen_addr", "0.0.0.0:0", "--admin.plain", "true", "--auth.acl_file", acl}, 2, []string{"admin.listen_addr", "auth.password"}},
		"readable on a line": {[]string{"--admin.listen_addr", "0.0.0.0:0", "--auth.password", "s3cret"}, 2, []string{"admin.tls", "admin.plain"}},
	} {
		args := append([]string{"--server.listen_addr", "127.0.0.1:0", "--storage.engine", "memory", "--log.level", "error"}, x.args...)
		said, code := kit.Run(t, args...)
		if code != x.code || strings.Contains(said, "\n") || !strings.HasPrefix(said, "fila: ") {
			t.Errorf("%s: exit code %d, want %d and one line: %s", name, code, x.code, said)
		}
		for _, part := range x.want {
			if !strings.Contains(said, part) {
				t.Errorf("%s: %q does not say %q", name, said, part)
			}
		}
	}
}

// ask sends a request and returns the status and the body.
func ask(t *testing.T, c *http.Client, method, url, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

func TestTheAdminListenerHasTheCertificatesOfClients(t *testing.T) {
	t.Parallel()
	addr := kit.Reserve(t)
	s := startSecured(t, "--admin.listen_addr", addr, "--admin.tls", "true")
	url := "https://" + addr + "/v1/command"
	const whoAmI = `["ACL","WHOAMI"]`
	over := func(name string) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: s.ca.client(t, name), DisableKeepAlives: true}}
	}
	if status, said := ask(t, over("robot"), "POST", url, whoAmI, nil); status != 200 || said != `"robot"` {
		t.Errorf("a certificate makes the user: %d %s", status, said)
	}
	if status, said := ask(t, over("stranger"), "POST", url, whoAmI, nil); status != 401 {
		t.Errorf("one of no user: %d %s", status, said)
	}
	admin := func(r *http.Request) { r.SetBasicAuth("admin", "4dmin") }
	if status, said := ask(t, over("stranger"), "POST", url, whoAmI, admin); status != 200 || said != `"admin"` {
		t.Errorf("with a password: %d %s", status, said)
	}
	if resp, err := over("").Get("https://" + addr + "/healthz"); err == nil {
		t.Errorf("without a certificate: %s", resp.Status)
	}
	resp, err := http.Get("http://" + addr + "/healthz")
	if err != nil || resp.StatusCode != 400 {
		t.Errorf("without TLS: %v, %v", resp, err)
	}
}

func TestNamesOfHostsAreReadAgain(t *testing.T) {
	t.Parallel()
	heedSignals()
	dir := t.TempDir()
	configure := func(hosts string) {
		t.Helper()
		text := fmt.Sprintf("[storage]\nengine = 'memory'\n[admin]\nlisten_addr = '127.0.0.1:0'\nhosts = [%s]\n", hosts)
		if err := os.WriteFile(filepath.Join(dir, "fila.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("'before.example'")
	o := started(t, kit.PrepareIn(t, dir))
	kit.Ready(t, o.Broker)
	want := func(before, after int) {
		t.Helper()
		for host, want := range map[string]int{"before.example": before, "after.example": after} {
			if got, said := ask(t, http.DefaultClient, "GET", o.url+"healthz", "", func(r *http.Request) { r.Host = host }); got != want {
				t.Errorf("%s: %d %s, want %d", host, got, said, want)
			}
		}
	}
	want(200, 403)
	configure("'after.example'")
	kit.Signal(t, o.Broker, syscall.SIGHUP)
	if line := kit.Logged(t, o.Broker, "configuration in force"); !strings.Contains(fmt.Sprint(line["settings"]), "admin.hosts") {
		t.Errorf("it says %v", line)
	}
	want(403, 200)
}
