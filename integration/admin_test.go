package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// operated is a running broker with an admin listener.
type operated struct {
	*process

	url string // ends with a slash
}

// operate starts a broker with an admin listener on a free port; fault is planted into it.
func operate(t *testing.T, fault string, args ...string) *operated {
	t.Helper()
	bin := binary(t)
	if fault != "" {
		var err error
		if bin, err = harness.Build(t.Context(), "fila-fault", ".", "-tags", "fault"); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bin, append([]string{
		"--server.listen_addr", "127.0.0.1:0", "--admin.listen_addr", "127.0.0.1:0", "--storage.engine", "memory",
	}, args...)...)
	cmd.Env = append(os.Environ(), "PLANTED_FAULT="+fault)
	o := &operated{process: startCommand(t, t.TempDir(), cmd)}
	o.url = fmt.Sprint(o.logged(t, "admin listener")["url"])
	return o
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

// wantHealth polls until the broker is in a state, and checks what both paths answer in it.
func (o *operated) wantHealth(t *testing.T, state string, alive, ready int) {
	t.Helper()
	status, said := o.get(t, "readyz")
	for end := time.Now().Add(patience); said != state; status, said = o.get(t, "readyz") {
		if time.Now().After(end) {
			t.Fatalf("it is %s and never %s", said, state)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if status != ready {
		t.Errorf("%s: /readyz is %d, want %d", state, status, ready)
	}
	if status, said := o.get(t, "healthz"); status != alive || said != state {
		t.Errorf("%s: /healthz is %d %s, want %d", state, status, said, alive)
	}
}

func TestHealthTellsTheStatesApart(t *testing.T) {
	t.Run("recovering, then running", func(t *testing.T) {
		o := operate(t, "slow-recovery")
		o.wantHealth(t, "recovering", 200, 503)
		if status, said := o.command(t, "FILA.QUEUE LIST"); status != 503 || !strings.Contains(said, "LOADING") {
			t.Errorf("meanwhile a command is answered %d %s", status, said)
		}
		o.ready(t)
		o.wantHealth(t, "running", 200, 200)
		if status, said := o.command(t, "FILA.QUEUE LIST"); status != 200 || said != "[]" {
			t.Errorf("then a command is answered %d %s", status, said)
		}
	})
	t.Run("refusing writes", func(t *testing.T) {
		o := operate(t, "read-only")
		o.ready(t)
		o.wantHealth(t, "running", 200, 200)
		if status, said := o.command(t, "FILA.QUEUE CREATE fail-from-here"); status != 503 || !strings.Contains(said, "MISCONF") {
			t.Errorf("a write is answered %d %s", status, said)
		}
		o.wantHealth(t, "read-only", 200, 503)
	})
	t.Run("stuck", func(t *testing.T) {
		o := operate(t, "stuck-loop")
		addr := o.ready(t)
		o.wantHealth(t, "running", 200, 200)
		c := raw(t, addr) // its reply never comes
		if _, err := io.WriteString(c, "FILA.QUEUE CREATE fail-from-here\r\n"); err != nil {
			t.Fatal(err)
		}
		o.wantHealth(t, "stuck", 503, 503)
		_ = o.cmd.Process.Kill()
		_, _ = o.wait(t)
	})
	t.Run("stopping", func(t *testing.T) {
		o := operate(t, "", "--server.shutdown_timeout_ms", "3000")
		unread(t, o.ready(t))
		o.signal(t, syscall.SIGTERM)
		o.wantHealth(t, "stopping", 200, 503)
		if status, said := o.command(t, "PING"); status != 503 || !strings.Contains(said, "LOADING") {
			t.Errorf("meanwhile a command is answered %d %s", status, said)
		}
		if code, rest := o.wait(t); code != 0 {
			t.Errorf("exit code %d: %s", code, rest)
		}
	})
}

// unread keeps a reply from leaving, so that a stop has to wait.
func unread(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	const size = 30 << 20 // more than sockets hold
	if _, err := fmt.Fprintf(c, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the reply is on its way
		t.Fatal(err)
	}
}

func TestTheAdminListenerIsOffUnlessItIsAskedFor(t *testing.T) {
	p := start(t, "--storage.engine", "memory")
	if line := p.logged(t, "ready"); line == nil {
		t.Fatal("it is not ready")
	}
	p.signal(t, syscall.SIGTERM)
	if _, rest := p.wait(t); strings.Contains(rest, "admin") {
		t.Errorf("it logs %s", rest)
	}
}

func TestAnAdminListenerThatCannotBeIsOneLineAndACode(t *testing.T) {
	o := operate(t, "")
	o.ready(t)
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
		code, said := startIn(t, t.TempDir(), args...).wait(t)
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
	addr, err := harness.Reserve()
	if err != nil {
		t.Fatal(err)
	}
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
	dir := t.TempDir()
	configure := func(hosts string) {
		t.Helper()
		text := fmt.Sprintf("[server]\nlisten_addr = '127.0.0.1:0'\n[storage]\nengine = 'memory'\n[admin]\nlisten_addr = '127.0.0.1:0'\nhosts = [%s]\n", hosts)
		if err := os.WriteFile(filepath.Join(dir, "fila.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("'before.example'")
	o := &operated{process: startIn(t, dir)}
	o.url = fmt.Sprint(o.logged(t, "admin listener")["url"])
	o.ready(t)
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
	o.signal(t, syscall.SIGHUP)
	if line := o.logged(t, "configuration in force"); !strings.Contains(fmt.Sprint(line["settings"]), "admin.hosts") {
		t.Errorf("it says %v", line)
	}
	want(403, 200)
}
