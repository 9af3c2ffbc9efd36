package cmdline_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// faulty is a server that answers HELLO, and then each command with a text, and closes.
func faulty(t *testing.T, greeting, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for _, text := range []string{greeting, answer} {
					if _, err := r.ReadString('\n'); err != nil {
						return
					}
					fmt.Fprint(c, text)
				}
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, r)
			}()
		}
	}()
	return l.Addr().String()
}

func TestWhatIsNoBrokerIsOneLineAndExitCode1(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	const hello = "%1\r\n+proto\r\n:3\r\n"
	for _, x := range []struct{ greeting, answer, want string }{
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "", "is no reply"},
		{"-ERR unknown command 'HELLO'\r\n", "", "unknown command"},
		{"+OK\r\n", "", "does not speak RESP3"},
		{"SSH-2.0-OpenSSH\r\n", "", "is no reply"},
		{hello, "*2\r\n$5\r\nab", "closed the connection before it answered"},
		{hello, "*9999999\r\n", "closed the connection before it answered"},
		{hello, "$9999999999999\r\n", "is no length"},
		{hello, strings.Repeat("*1\r\n", 100), "levels deep"},
		{hello, "-NOAUTH Authentication required.\r\n", "the broker needs a password: set FILA_AUTH__PASSWORD"},
		{hello, "-ERR two\x1b[2J\r\n", "ERR two"},
	} {
		url := "fila://" + faulty(t, x.greeting, x.answer)
		for _, line := range []string{"fila queues show orders", "fila call PING"} {
			_, stderr, code := b.typed("FILA_URL=" + url + fmt.Sprintf(" timeout %.0f ", testkit.Patience().Seconds()) + line)
			if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, x.want) || strings.Contains(stderr, "\x1b") {
				t.Errorf("%q, %q: %s: exit code %d: %q", x.greeting, x.answer, line, code, stderr)
			}
		}
	}
}

func TestAWrongURLIsOneLine(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	for url, want := range map[string]struct {
		code int
		says string
	}{
		"fila://127.0.0.1:1":                {1, "no broker at 127.0.0.1:1"},
		"fila://no-such-host.invalid":       {1, "no broker at no-such-host.invalid:5555"},
		"filas://" + b.Addr():               {1, "no broker at"}, // it speaks no TLS there
		"fila://nobody:secret@" + b.Addr():  {1, "WRONGPASS"},
		"http://127.0.0.1:5555":             {2, "FILA_URL must be like fila://"},
		"fila://127.0.0.1:99999":            {2, "port"},
		"fila://:s3cret%zz@127.0.0.1:5555/": {2, "FILA_URL must be like fila://"},
	} {
		for _, line := range []string{"fila queues list", "fila enqueue q x", "fila work q -- true", "fila tail", "fila top --once", "fila doctor", "fila scripts list", "fila health"} {
			if line == "fila health" && want.says == "WRONGPASS" {
				continue // a broker that refuses is alive
			}
			out, stderr, code := b.typed("FILA_URL='" + url + "' " + line)
			if code != want.code || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want.says) || strings.Contains(stderr, "s3cret") {
				t.Errorf("%s: %s: exit code %d, want %d with %q\nstdout %q\nstderr %q", url, line, code, want.code, want.says, out, stderr)
			}
		}
	}
}

// TestABrokerThatDiesWhileACommandRuns kills the broker while commands wait for it.
func TestABrokerThatDiesWhileACommandRuns(t *testing.T) {
	b := serve(t)
	b.do("FILA.QUEUE", "CREATE", "q")
	for _, line := range []string{"fila call FILA.LEASE q BLOCK 0", "fila tail q"} {
		var said strings.Builder
		cmd := b.shell("exec " + line)
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, line+" waits", func() bool {
			list := client.Text(b.do("CLIENT", "LIST"))
			return strings.Contains(list, "cmd=fila.lease") || strings.Contains(list, "cmd=psubscribe")
		})
		b.restart()
		err := cmd.Wait()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 1 || strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "the broker has closed the connection before it answered") {
			t.Errorf("%s: %v: %q", line, err, said.String())
		}
	}
}
