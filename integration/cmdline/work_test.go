package cmdline_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// working starts a worker.
func (b *broker) working(line string) *exec.Cmd {
	b.t.Helper()
	cmd := b.shell("exec " + line)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	return cmd
}

// info is a field of FILA.QUEUE INFO.
func (b *broker) info(queue, field string) int64 {
	b.t.Helper()
	return b.do("FILA.QUEUE", "INFO", queue).(client.Map).Int(field)
}

// left is how many messages a queue holds.
func (b *broker) left(queue string) int64 {
	b.t.Helper()
	return b.info(queue, "ready") + b.info(queue, "delayed") + b.info(queue, "leased")
}

// TestWorkLosesNothingWhenChildWorkerOrBrokerIsKilled kills all three again and again. Each message
// is then processed at least once, by a child that has ended with 0, and nothing is left or dead.
func TestWorkLosesNothingWhenChildWorkerOrBrokerIsKilled(t *testing.T) {
	rounds, share := 12, 32 // share is how many messages each round brings
	if testing.Short() {
		rounds, share = 6, 20
	}
	b := serve(t)
	b.do("FILA.QUEUE", "CREATE", "q", "VISIBILITY", "800", "BACKOFF", "10", "MAXATTEMPTS", "100000")
	child := filepath.Join(b.dir, "child.sh")
	// Each child says that it runs; what it has done it says in one write, at its end.
	script := "#!/bin/sh\nread n\necho $$ >> running\nsleep 0.05\nwhile [ -e hold ]; do sleep 0.02; done\necho $n $FILA_MESSAGE_ID >> done\n"
	if err := os.WriteFile(child, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"done", "running"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("what is killed when is from seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	const line = "fila work q --concurrency 4 -- ./child.sh 2>> log"
	w := b.working(line)
	killed := map[string]int{}
	hold := filepath.Join(b.dir, "hold") // while it is there, children do not end by themselves
	messages := 0
	for round := range rounds {
		// Each round brings work and waits for some of it, not for some time.
		begun := b.lines("running")
		if round%3 == 0 {
			if err := os.WriteFile(hold, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range share {
			messages++
			b.do("FILA.ENQUEUE", "q", strconv.Itoa(messages))
		}
		switch round % 3 {
		case 0:
			testkit.Eventually(t, "a child is killed", func() bool {
				kills := killed["child"]
				for _, pid := range b.lastLines("running", 4) {
					n, err := strconv.Atoi(pid)
					if err == nil && n > 1 && isChild(n) && syscall.Kill(n, syscall.SIGKILL) == nil {
						killed["child"]++
					}
				}
				return killed["child"] > kills
			})
			if err := os.Remove(hold); err != nil {
				t.Fatal(err)
			}
		case 1:
			b.childrenSince(begun + 4 + chance.IntN(12))
			if interrupt(t, w, syscall.SIGKILL) == -1 {
				killed["worker"]++
			}
			w = b.working(line)
		case 2:
			b.childrenSince(begun + 4 + chance.IntN(12))
			b.restart()
			killed["broker"]++
		}
	}
	testkit.Eventually(t, "the queue is empty", func() bool { return b.left("q") == 0 })
	if code := interrupt(t, w, syscall.SIGTERM); code != 0 {
		t.Errorf("the worker stopped with exit code %d", code)
	}
	done := map[string]int{}
	for _, line := range b.lastLines("done", 1<<20) {
		n, _, _ := strings.Cut(line, " ")
		done[n]++
	}
	for n := 1; n <= messages; n++ {
		if done[strconv.Itoa(n)] == 0 {
			t.Errorf("message %d was acked and never processed", n)
		}
	}
	if dead := b.info("q.dlq", "ready"); dead > 0 {
		t.Errorf("%d messages are dead", dead)
	}
	if killed["child"] < rounds/3 || killed["worker"] < rounds/3 || killed["broker"] < rounds/3 {
		t.Errorf("the test killed too little: %v", killed)
	}
	t.Logf("killed %v; %d children ran for %d messages", killed, b.lines("running"), messages)
}

// childrenSince waits until so many children have begun.
func (b *broker) childrenSince(count int) {
	b.t.Helper()
	testkit.Eventually(b.t, "children run", func() bool { return b.lines("running") >= count })
}

// isChild says whether a process is still the one that the test has started.
func isChild(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(text, []byte("child.sh"))
}

// lines counts the lines of a file.
func (b *broker) lines(name string) int {
	b.t.Helper()
	return len(b.lastLines(name, 1<<20))
}

// lastLines are the last n lines of a file.
func (b *broker) lastLines(name string, n int) []string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	if all[0] == "" {
		return nil
	}
	return all[max(0, len(all)-n):]
}

func TestWhatBecomesOfAMessageIsTheExitCodeOfItsProgram(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	for _, x := range []struct {
		program, flags string
		acked          int64
		status, error  string // of the message, if it is still there
	}{
		{"true", "", 1, "", ""},
		{"cat > /dev/null; echo fine >&2", "", 1, "", ""},
		{"exit 3", "", 0, "delayed", "exit status 3"},
		{"echo first >&2; echo the last >&2; echo >&2; exit 1", "", 0, "delayed", "the last"},
		{"printf without-an-end >&2; exit 1", "", 0, "delayed", "without-an-end"},
		{"kill -9 $$", "", 0, "delayed", "ended by signal: killed"},
		{"exit 65", "--dead-on 64,65", 0, "dead", "exit status 65"},
		{"exit 66", "--dead-on 64,65", 0, "delayed", "exit status 66"},
	} {
		b.furnish()
		b.do("FILA.QUEUE", "CREATE", "q", "BACKOFF", "3600000")
		id := client.Text(b.do("FILA.ENQUEUE", "q", "hello"))
		_, stderr, code := b.typed(fmt.Sprintf("fila work q --max 1 %s -- sh -c '%s'", x.flags, x.program))
		if code != 0 || b.info("q", "acked") != x.acked || x.acked == 0 && !strings.Contains(stderr, x.error) {
			t.Errorf("%s: exit code %d, acked %d, said %s", x.program, code, b.info("q", "acked"), stderr)
		}
		queue := "q"
		if x.status == "dead" {
			queue = "q.dlq"
		}
		if x.status == "" {
			continue
		}
		list := b.do("FILA.BROWSE", queue).([]any)[1].([]any)
		if len(list) != 1 {
			t.Fatalf("%s: %s has %v", x.program, queue, list)
		}
		if m := list[0].(client.Map); m.Text("status") != x.status || m.Text("error") != x.error {
			t.Errorf("%s: message %s is %s with the error %q", x.program, id, m.Text("status"), m.Text("error"))
		}
	}
}

func TestAProgramGetsTheMessageAndNoSecrets(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "q")
	id := client.Text(b.do("FILA.ENQUEUE", "q", "pay\nload", "KEY", "tenant-7", "HEADER", "X-Trace.id", "a b", "HEADER", "binary", "a\x00b"))
	out, stderr, code := b.typed("FILA_AUTH__PASSWORD= FILA_MESSAGE_OLD=1 fila work q --once -- sh -c 'cat; echo; env | grep ^FILA | sort'")
	want := "pay\nload\nFILA_MESSAGE_ATTEMPT=1\nFILA_MESSAGE_DELIVERIES=1\nFILA_MESSAGE_ENQUEUED_AT="
	rest := "\nFILA_MESSAGE_HEADER_X_TRACE_ID=a b\nFILA_MESSAGE_ID=" + id + "\nFILA_MESSAGE_KEY=tenant-7\nFILA_MESSAGE_QUEUE=q\n"
	if code != 0 || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, rest) || stderr != "" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}

func TestALeaseIsExtendedWhileTheProgramRuns(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	// The worker extends a lease every third of its time. What is tested is that real time may pass, so the
	// lease is long enough for a busy machine, and the program outlives it.
	b.do("FILA.QUEUE", "CREATE", "q", "VISIBILITY", "6000")
	b.do("FILA.ENQUEUE", "q", "hello")
	w := b.working("fila work q --max 1 -- sh -c 'while [ ! -e go ]; do sleep 0.02; done'")
	testkit.Eventually(t, "the lease would have ended without its extensions", func() bool { return extended(b) >= 4 })
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
	if n := b.info("q", "acked"); n != 1 || b.info("q", "expired") != 0 || b.info("q", "delivered") != 1 {
		t.Errorf("%d acked, %d expired, %d delivered", n, b.info("q", "expired"), b.info("q", "delivered"))
	}
}

// extended counts the calls of FILA.EXTEND.
func extended(b *broker) int {
	conn, err := client.Dial(b.t.Context(), b.Addr(), client.Options{})
	if err != nil {
		return 0
	}
	defer conn.Close()
	reply, err := conn.Do(b.t.Context(), "INFO", "commandstats")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(client.Text(reply), "cmdstat_fila.extend:calls=")
	n, _, _ := strings.Cut(after, ",")
	calls, _ := strconv.Atoi(n)
	return calls
}

func TestAProgramWhoseMessageIsTakenAwayIsEnded(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "q", "VISIBILITY", "6000") // the worker sees it within a third of that
	id := client.Text(b.do("FILA.ENQUEUE", "q", "hello"))
	w := b.working("fila work q --max 1 -- sh -c 'trap \"echo ended > ended; exit 1\" TERM; echo > begun; while true; do sleep 0.02; done'")
	testkit.Eventually(t, "the program runs", func() bool { _, err := os.Stat(filepath.Join(b.dir, "begun")); return err == nil })
	b.do("FILA.CANCEL", "q", id)
	err := w.Wait()
	if _, missing := os.Stat(filepath.Join(b.dir, "ended")); err != nil || missing != nil {
		t.Errorf("it ends with %v; %v", err, missing)
	}
}

func TestASignalLetsProgramsFinishAndGivesBackTheRest(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "q")
	b.want(0, "", "", "seq 10 | fila enqueue q --lines > ids")
	w := b.working("fila work q --concurrency 2 -- sh -c 'echo >> begun; while [ ! -e go ]; do sleep 0.02; done'")
	begun := filepath.Join(b.dir, "begun")
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "two programs run", func() bool { text, err := os.ReadFile(begun); return err == nil && len(text) == 2 })
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if b.info("q", "leased") != 2 {
		t.Errorf("%d are leased", b.info("q", "leased"))
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
	if b.info("q", "acked") != 2 || b.info("q", "leased") != 0 || b.info("q", "ready") != 8 {
		t.Errorf("%d acked, %d leased, %d ready", b.info("q", "acked"), b.info("q", "leased"), b.info("q", "ready"))
	}
}

func TestAWorkerThatCannotBeginSaysWhy(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "q")
	b.want(2, "", "executable file not found", "fila work q -- no-such-program")
	b.want(2, "", "--concurrency must be from 1 to 1024", "fila work q --concurrency 0 -- true")
	b.want(2, "", "--concurrency must be from 1 to 1024", "fila work q --concurrency 1025 -- true")
	b.want(2, "", "--dead-on must be exit codes", "fila work q --dead-on never -- true")
	b.want(2, "", "--visibility must be at least 100ms", "fila work q --visibility 99ms -- true")
	b.want(2, "", "--max must not be negative", "fila work q --max -1 -- true")
	b.want(2, "", "takes QUEUE -- PROGRAM", "fila work q")
	b.want(3, "", "NOQUEUE", "fila work nosuch -- true")
	b.want(1, "", "no broker at 127.0.0.1:1", "fila work q --url fila://127.0.0.1:1 -- true")
}
