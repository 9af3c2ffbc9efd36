package cmdline_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// screen is a terminal of 80×24 in which a command runs.
type screen struct {
	t      *testing.T
	socket string
}

func (b *broker) screen(line string) *screen {
	b.t.Helper()
	s := &screen{b.t, filepath.Join(b.t.TempDir(), "tmux")}
	script := filepath.Join(b.dir, "run.sh")
	cmd := b.shell(line)
	text := fmt.Sprintf("cd %s\nexport PATH=%s:$PATH FILA_URL=fila://%s NO_COLOR=1\n%s\necho it ended with $?\nexec cat\n", b.dir, b.path, b.Addr(), line)
	cmd.Process = nil
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "bash "+script)
	b.t.Cleanup(func() { _ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() })
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// shows waits until the screen contains a text.
func (s *screen) shows(text string) {
	s.t.Helper()
	last := ""
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the screen was\n%s", last)
		}
	})
	testkit.Eventually(s.t, "the screen shows "+text, func() bool {
		last = s.tmux("capture-pane", "-p")
		return strings.Contains(last, text)
	})
}

func TestTheLiveViewOfTopFitsATerminal(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.QUEUE", "CREATE", "mails")
	for _, key := range []string{"tenant-7", "tenant-7", "tenant-8"} {
		b.do("FILA.ENQUEUE", "orders", "hello", "KEY", key)
	}
	s := b.screen("fila top --every 100ms")
	s.shows("▸ orders")
	s.shows("q quit   enter keys   s sort: ready   / filter   p pause")
	b.do("FILA.ENQUEUE", "mails", "hello")
	s.shows("queues 4   ready 4 ")
	s.tmux("send-keys", "Down")
	s.shows("▸ mails")
	s.tmux("send-keys", "/", "o", "r", "d", "Enter")
	s.shows("/ filter: ord")
	s.shows("▸ orders")
	s.tmux("send-keys", "Enter")
	s.shows("queue orders   ready 3 ")
	s.shows("▸ tenant-7")
	s.tmux("send-keys", "Enter")
	s.shows("why tenant-7 is where it is")
	s.shows("no_consumer: ")
	s.tmux("send-keys", "Escape")
	s.shows("▸ tenant-7")
	b.restart()
	s.shows("NOQUEUE") // the store was in memory
}

func TestTopGoesOnWhenTheBrokerRestarts(t *testing.T) {
	b := serve(t)
	b.do("FILA.QUEUE", "CREATE", "orders")
	s := b.screen("fila top --every 100ms")
	s.shows("▸ orders")
	b.conn.Close()
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	s.shows("trying again")
	b.begin()
	b.do("FILA.ENQUEUE", "orders", "hello")
	s.shows("queues 2   ready 1 ")
	s.tmux("send-keys", "q")
	s.shows("it ended with 0")
}

func TestTopPrintsPictures(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.ENQUEUE", "orders", "hello", "KEY", "tenant-7")
	if out := b.want(0, "orders", "", "COLUMNS=60 fila top --once"); strings.Contains(out, "\x1b") || strings.Count(out, "fila top") != 1 {
		t.Errorf("%q", out)
	}
	if out := b.want(0, "tenant-7", "", "fila top orders --batch --every 100ms --count 3"); strings.Count(out, "fila top") != 3 {
		t.Errorf("%q", out)
	}
	b.want(0, `"enqueued_per_second":0`, "", "fila top --once -o jsonl --filter ord")
	b.want(3, "", "NOQUEUE", "fila top nosuch --once")
	b.want(2, "", "--sort must be one of queue, ready", "fila top --sort sideways")
	b.want(2, "", "--every must be at least 100ms", "fila top --every 1ms")
	b.want(2, "", "give one of them", "fila top --once --batch")
}
