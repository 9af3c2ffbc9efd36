package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

func TestAWrongURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"--url", "fila://a:s3cret@10.0.0.7:70000"}, "must end in a port"},
		{[]string{"--url", "fila://a:s3cret%@10.0.0.7"}, "--url must be like fila://user:password@host:port"},
		{[]string{"--url", "http://a:s3cret@10.0.0.7"}, `not "http"`},
		{[]string{"--url", "fila://a:s3cret@10.0.0.7/3"}, "no databases"},
		{[]string{"--url", "fila://a:s3cret@10.0.0.7?x=s3cret"}, "takes no parameters"},
		{[]string{"--url", "fila://a:s3cret@"}, "no host"},
		{[]string{"--url", "10.0.0.7:5555"}, "--url must be like"},
		{[]string{"--url", "fila://10.0.0.7", "--addr", "10.0.0.8:5555"}, "give one of them"},
		{[]string{"--addr", "10.0.0.8"}, "must be host:port"},
		{[]string{"--cacert", "ca.pem"}, "--cacert is for TLS"},
		{[]string{"--tls", "--cacert", "nowhere.pem"}, "nowhere.pem"},
		{[]string{"--tls", "--cacert", "connect_test.go"}, "there is no certificate in"},
		{[]string{"--tls", "--cert", "a.pem"}, "--cert and --tls-key need each other"},
		{[]string{"--tls", "--cert", "a.pem", "--key", "b.pem"}, "a.pem"},
	} {
		for _, command := range [][]string{{"health"}, {"queues", "apply", queuesFile(t, "")}} {
			code, stdout, stderr := run(t, never(t), slices.Concat(command, x.args)...)
			if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, x.want) || strings.Contains(stderr, "s3cret") {
				t.Errorf("%q: exit %d, stdout %q, stderr %q; want 2 and a line with %q", x.args, code, stdout, stderr, x.want)
			}
		}
	}
}

// server answers each line "command argument ..." that it reads with what is listed for it, until
// the test ends; what is not listed is never answered.
func server(t *testing.T, answers map[string]string) (addr string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
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
			go serveFake(c, answers)
		}
	}()
	return l.Addr().String()
}

// serveFake reads RESP arrays of bulk strings.
func serveFake(c net.Conn, answers map[string]string) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		var n int
		if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
			return
		}
		words := make([]string, n)
		for i := range words {
			var size int
			if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
				return
			}
			text := make([]byte, size+2)
			if _, err := io.ReadFull(r, text); err != nil {
				return
			}
			words[i] = string(text[:size])
		}
		said := strings.Join(words, " ")
		answer, ok := answers[said]
		if !ok && said == "HELLO 3" {
			answer, ok = "%1\r\n+proto\r\n:3\r\n", true
		}
		if ok {
			if _, err := fmt.Fprint(c, answer); err != nil {
				return
			}
		}
	}
}

func TestThePasswordIsAskedForOnATerminalOnly(t *testing.T) {
	addr := server(t, map[string]string{
		"HELLO 3 AUTH deploy ":              "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
		"HELLO 3 AUTH deploy s3cret":        "%0\r\n",
		"HELLO 3 AUTH open ":                "%0\r\n",
		"INFO persistence replication fila": "$0\r\n\r\n",
	})
	for _, x := range []struct {
		user     string
		terminal bool
		code     int
		asked    string
		says     string
	}{
		{"deploy", true, 0, "password of deploy: ", ""},
		{"deploy", false, 1, "", "fila: the user deploy needs a password: set FILA_AUTH__PASSWORD, or put it into FILA_URL\n"},
		{"open", true, 0, "", ""},
	} {
		var out, errOut strings.Builder
		asked := ""
		proc := Process{Args: []string{"health", "--timeout", testkit.Patience().String(), "--addr", addr, "--user", x.user}, Stdout: &out, Stderr: &errOut}
		if x.terminal {
			proc.Password = func(question string) (string, error) { asked = question; return "s3cret", nil }
		}
		code := Main(t.Context(), Program{}, proc)
		if code != x.code || asked != x.asked || errOut.String() != x.says {
			t.Errorf("%+v: exit %d, asked %q, said %q", x, code, asked, errOut.String())
		}
	}
}
