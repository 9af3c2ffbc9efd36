package broker

import (
	"bytes"
	"strings"
	"testing"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/internal/testkit"
)

// subcommand runs a subcommand in this process.
func subcommand(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t, cli.Program{}, environ, args...)
}

// run runs a program in this process.
func run(t *testing.T, p cli.Program, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = cli.Main(t.Context(), p, cli.Process{Args: args, Environ: environ, Stdout: &out, Stderr: &errOut})
	return code, out.String(), errOut.String()
}

func TestHealthAsksTheBrokerAsTheUserThatItIsGiven(t *testing.T) {
	i := launch(t, map[string]string{"auth.users": "user default on >s3cret ~* +@all\nuser monitor on >m0nitor +info\nuser worker on >w0rker ~* +@consume"})
	for _, x := range []struct {
		environ      []string
		alive, ready string
	}{
		{nil, "alive\n", "fila: NOAUTH Authentication required.\n"},
		{[]string{"FILA_AUTH__PASSWORD=s3cret"}, "alive\n", "ready\n"},
		{[]string{"FILA_AUTH__PASSWORD=wrong"}, "alive\n", "fila: WRONGPASS "},
		{[]string{"FILA_URL=fila://monitor:m0nitor@" + i.addr}, "alive\n", "ready\n"},
		{[]string{"FILA_URL=fila://worker:w0rker@" + i.addr}, "alive\n", "fila: NOPERM "},
	} {
		args := []string{"health", "--timeout", testkit.Patience().String(), "--addr", i.addr}
		for want, args := range map[string][]string{x.alive: args, x.ready: append(args, "--ready")} {
			code, stdout, stderr := subcommand(t, x.environ, args...)
			if said := stdout + stderr; !strings.HasPrefix(said, want) || (code == 0) != (stderr == "") || code > 1 {
				t.Errorf("%q with %q: exit %d, said %q, want %q", args, x.environ, code, said, want)
			}
		}
	}
}

func TestABrokerThatHasStoppedIsNotAlive(t *testing.T) {
	i := launch(t, nil)
	if code, _, stderr := subcommand(t, nil, "health", "--ready", "--timeout", testkit.Patience().String(), "--addr", i.addr); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	i.stop()
	if err := <-i.ended; err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := subcommand(t, nil, "health", "--timeout", testkit.Patience().String(), "--addr", i.addr); code != 1 || !strings.Contains(stderr, "no broker at "+i.addr) {
		t.Errorf("exit %d, said %q", code, stderr)
	}
}
