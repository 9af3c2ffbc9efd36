package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

func TestTwoSignalsTogetherAreOne(t *testing.T) {
	t.Parallel()
	together := 0
	testkit.Eventually(t, "signals are sent at once five times", func() bool {
		b := kit.Serve(t)
		began := time.Now()
		for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM} {
			kit.Signal(t, b, s)
		}
		atOnce := time.Since(began) < 500*time.Millisecond // a second after the first they may end the broker
		code, log := kit.Exit(t, b), kit.Log(t, b)
		if atOnce {
			if together++; code != 0 || !strings.Contains(log, `"message":"stopped"`) {
				t.Errorf("exit code %d: %s", code, log)
			}
		}
		return together == 5
	})
}

// heedSignals gives processes that a test starts the default action of SIGHUP and SIGINT, in case the tests
// were started to ignore them, as by nohup or in the background of a shell. It holds until this process ends.
func heedSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

func TestAHangupReadsConfigurationAndUsersAgain(t *testing.T) {
	t.Parallel()
	heedSignals()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(level, window string) {
		write("fila.toml", "[server]\nwindow_max = "+window+"\n[log]\nlevel = \""+level+"\"\n[auth]\nacl_file = \"users.acl\"\n")
	}
	config("info", "100")
	write("users.acl", "user default on nopass ~* &* +@all\n")
	b := kit.PrepareIn(t, dir)
	kit.Start(t, b)
	addr := b.Addr()
	config("loud", "100")
	kit.Signal(t, b, syscall.SIGHUP)
	if line := kit.Logged(t, b, "SIGHUP: invalid configuration, the current one stays in effect"); !strings.Contains(fmt.Sprint(line["error"]), "log.level") {
		t.Errorf("it logged %v", line)
	}
	config("debug", "200")
	write("users.acl", "user default on nopass ~* &* +@all\nuser late on >secret ~* &* +@all\n")
	if got := said(t, addr, "AUTH late secret"); !strings.Contains(got, "WRONGPASS") {
		t.Errorf("before: %s", got)
	}
	kit.Signal(t, b, syscall.SIGHUP)
	if line := kit.Logged(t, b, "changed settings that require a restart"); !reflect.DeepEqual(line["settings"], []any{"server.window_max"}) {
		t.Errorf("it logged %v", line)
	}
	if line := kit.Logged(t, b, "configuration in force"); !reflect.DeepEqual(line["settings"], []any{"log.level"}) {
		t.Errorf("it logged %v", line)
	}
	if got := said(t, addr, "AUTH late secret"); !strings.Contains(got, "OK") {
		t.Errorf("after: %s", got)
	}
	if got := said(t, addr, "CONFIG GET log.level"); !strings.Contains(got, "debug") {
		t.Errorf("the level: %s", got)
	}
	kit.Stop(t, b)
	if log := kit.Log(t, b); !strings.Contains(log, `"message":"stopped"`) {
		t.Errorf("it logged %s", log)
	}
}

func said(t *testing.T, addr, command string) string {
	t.Helper()
	return strings.Join(typed(t, addr, command), " ")
}

// The terminal is the broker's own, so closing it sends the signal.
func TestTheEndOfTheTerminalStopsInOrder(t *testing.T) {
	t.Parallel()
	heedSignals()
	outer, inner := terminal(t)
	cmd := exec.Command(kit.Binary(t), "--server.listen_addr", "127.0.0.1:0")
	cmd.Dir = t.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inner, inner, inner
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(testkit.Patience(), func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	text, block := "", make([]byte, 4096)
	for !strings.Contains(text, "ready") {
		n, err := outer.Read(block)
		if err != nil {
			t.Fatalf("%v after %q", err, text)
		}
		text += string(block[:n])
	}
	if err := outer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("without its terminal: %v", err)
	}
}

// terminal opens a pair of pseudo-terminals.
func terminal(t *testing.T) (outer, inner *os.File) {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outer.Close() })
	if err := unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(outer.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if inner, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	return outer, inner
}
