package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// limited starts the broker in a shell that has set its limit of open files, hard and soft, or only
// one of them if the number follows a word such as "-S". It returns the broker and the lines logged so far.
func limited(t *testing.T, limit string, args ...string) (b *harness.Broker, logged []map[string]any) {
	t.Helper()
	b = kit.Prepare(t, append([]string{"--log.format", "json"}, args...)...)
	b.SetShell("ulimit " + limit)
	kit.Start(t, b)
	kit.Logged(t, b, "ready")
	for text := range strings.Lines(kit.Log(t, b)) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("it logged %q", text)
		}
		logged = append(logged, line)
	}
	return b, logged
}

// lowered returns the log line that reports a reduced connection limit.
func lowered(t *testing.T, logged []map[string]any) map[string]any {
	t.Helper()
	var found []map[string]any
	for _, line := range logged {
		if strings.Contains(fmt.Sprint(line["message"]), "maxclients") {
			found = append(found, line)
		}
	}
	if len(found) > 1 {
		t.Errorf("more than one line: %v", found)
	}
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// descriptors returns the number of open descriptors of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestTheStoreKeepsItsDescriptors starts a broker with a low limit of open files and repeatedly
// connects more clients than fit. The excess clients receive an error, and enqueues, flushes,
// compactions, backups and leases meanwhile succeed.
func TestTheStoreKeepsItsDescriptors(t *testing.T) {
	t.Parallel()
	const (
		limit    = 300
		messages = 200
	)
	// No password is set, so every client counts as unauthenticated.
	b, logged := limited(t, "-n "+strconv.Itoa(limit), "--storage.mode", "low_space")
	line := lowered(t, logged)
	if line == nil {
		t.Fatal("nothing was logged of fewer connections")
	}
	addr := b.Addr()
	most := int(line["maxclients"].(float64))
	if most < 50 || most > limit-64 || line["wanted"] != 10_000.0 || line["open_files"] != float64(limit) {
		t.Errorf("logged %v", line)
	}
	admin := kit.Connect(t, addr, 2)
	admin.Options().PoolSize = 1
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "q")
	for _, name := range []string{"maxclients", "server.maxclients"} {
		if got := fmt.Sprint(kit.Do(t, admin, "CONFIG", "GET", name)); !strings.Contains(got, strconv.Itoa(most)) {
			t.Errorf("CONFIG GET %s answers %s, want %d", name, got, most)
		}
	}
	if got := fmt.Sprint(kit.Do(t, admin, "INFO", "clients")); !strings.Contains(got, fmt.Sprintf("maxclients:%d\r\n", most)) {
		t.Errorf("INFO clients answers %s, want %d", got, most)
	}

	var held []net.Conn
	for range most + 10 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c)
	}
	if reply := ping(held[len(held)-1].(*net.TCPConn)); reply != "-ERR max number of clients reached\r\n" {
		t.Errorf("one too many is told %q", reply)
	}
	var refused atomic.Int64
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				if b, _ := io.ReadAll(c); string(b) == "-ERR max number of clients reached\r\n" { // a reset may arrive before it
					refused.Add(1)
				}
				_ = c.Close()
			}
		})
	}
	highest := 0
	payload := strings.Repeat("x", 256<<10)
	for i := range messages { // 50 MiB: several flushes and compactions in this mode
		kit.Do(t, admin, "FILA.ENQUEUE", "q", payload, "KEY", i%7)
		if i%3 == 0 {
			d := one(t, admin, "q")
			kit.Do(t, admin, "FILA.ACK", "q", d.receipt)
		}
		highest = max(highest, descriptors(t, b.PID()))
	}
	backup := kit.Mapped(t, kit.Do(t, admin, "FILA.BACKUP", "full"))
	if _, err := os.Stat(filepath.Join(fmt.Sprint(backup["path"]), "CURRENT")); err != nil {
		t.Errorf("the backup: %v", err)
	}
	close(stop)
	clients.Wait()
	kit.WantStats(t, admin, "q", map[string]int64{"enqueued": messages, "acked": 67, "ready": messages - 67})
	if refused.Load() == 0 {
		t.Error("no client was refused: the bound was not reached")
	}
	if highest >= limit {
		t.Errorf("%d of %d files were open", highest, limit)
	}
	t.Logf("%d connections at most, %d were refused, %d of %d files were open at most", most, refused.Load(), highest, limit)
}

// The soft limit is raised to the hard one; if that suffices, the connection limit is kept.
func TestTheLimitOfOpenFilesIsRaised(t *testing.T) {
	t.Parallel()
	b, logged := limited(t, "-S -n 64", "--server.maxclients", "100")
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", b.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); strings.HasPrefix(line, "Max open files") && words[3] != words[4] {
			t.Errorf("the soft limit is %s, the hard one %s", words[3], words[4])
		}
	}
	if own.Max < 1200 {
		t.Fatalf("the hard limit of this machine is %d: the test needs 1200", own.Max)
	}
	if line := lowered(t, logged); line != nil {
		t.Errorf("logged %v although the hard limit is %d", line, own.Max)
	}
	if got := fmt.Sprint(kit.Do(t, kit.Connect(t, b.Addr(), 2), "CONFIG", "GET", "maxclients")); got != "[maxclients 100]" {
		t.Errorf("CONFIG GET answers %s", got)
	}
}

// If the limit is too low for the store and one client, the broker refuses to start and says what
// to do.
func TestTooFewDescriptorsAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(testkit.Context(t), "sh", "-c", `ulimit -n 100 && exec "$@"`, "sh", kit.Binary(t), "--server.listen_addr", "127.0.0.1:0", "--storage.path", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "open 100 files") || !strings.Contains(string(out), "ulimit -n") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}
