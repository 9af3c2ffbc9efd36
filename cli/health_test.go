package cli

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

func TestHealthTellsAliveFromReady(t *testing.T) {
	info := func(loading, writable int, replication ...string) string {
		text := fmt.Sprintf("# Persistence\r\nloading:%d\r\nasync_loading:0\r\n\r\n%s\r\n# Fila\r\nwritable:%d\r\n", loading, strings.Join(replication, "\r\n"), writable)
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	}
	for _, x := range []struct {
		reply        string
		alive, ready string // standard output, or the error after "fila: "
	}{
		{info(0, 1), "alive", "ready"},
		{info(0, 0), "alive", "fila: the broker is not ready: it takes no writes, its log says why"},
		{info(1, 0), "alive", "fila: the broker is not ready: it is recovering its queues"},
		{info(0, 0, "role:slave", "master_link_status:down"), "alive", "fila: the broker is not ready: no node of the cluster leads, see fila cluster status"},
		{"-NOAUTH Authentication required.\r\n", "alive", "fila: NOAUTH Authentication required."},
		{"-NOPERM no right\r\n", "alive", "fila: NOPERM no right"},
		{"-LOADING stopping\r\n", "alive", "fila: LOADING stopping"},
		{"-ERR max number of clients reached\r\n", "fila: ERR max number of clients reached", "fila: ERR max number of clients reached"},
		{"+hello\r\n", "alive", "fila: the broker is not ready: it is recovering its queues"},
	} {
		addr := server(t, map[string]string{"INFO persistence replication fila": x.reply})
		for args, want := range map[string]string{"": x.alive, "--ready": x.ready} {
			code, stdout, stderr := run(t, never(t), append([]string{"health", "--timeout", testkit.Patience().String(), "--addr", addr}, strings.Fields(args)...)...)
			refused := strings.HasPrefix(want, "fila: ")
			if refused && (code != 1 || stdout != "" || stderr != want+"\n") || !refused && (code != 0 || stdout != want+"\n" || stderr != "") {
				t.Errorf("%q %s: exit %d, stdout %q, stderr %q, want %q", x.reply, args, code, stdout, stderr, want)
			}
		}
	}
}

func TestABrokerThatDoesNotAnswerIsNotAlive(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // without an accept
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := l.Addr().String()
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--addr", silent, "--timeout", "20ms"}, 1, "the broker has not answered within 20ms"},
		{[]string{"--addr", silent, "--tls", "--timeout", "20ms"}, 1, "the broker has not answered within 20ms"},
		{[]string{"--addr", "127.0.0.1:1", "--timeout", testkit.Patience().String()}, 1, "no broker at 127.0.0.1:1"},
		{[]string{"--timeout", "0s"}, 2, "--timeout must be positive"},
	} {
		code, stdout, stderr := run(t, never(t), append([]string{"health"}, x.args...)...)
		if code != x.code || stdout != "" || !strings.Contains(stderr, x.want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q, want %d and %q", x.args, code, stdout, stderr, x.code, x.want)
		}
	}
}
