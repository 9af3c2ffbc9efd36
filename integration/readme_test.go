package integration_test

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTheReadmeSessionIsTrue types the README's redis-cli session into redis-cli
// and compares what it prints. Ids and times differ each time: an id stands for
// the one that was answered where it is first seen, a time for any time.
func TestTheReadmeSessionIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```redis-cli\n")
	block, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("README.md has no redis-cli block")
	}
	steps := session(block)
	if len(steps) < 5 {
		t.Fatalf("found %d commands", len(steps))
	}
	addr := startForReadme(t)
	ids := map[string]string{} // in the README → answered
	for _, s := range steps {
		command := uuids().ReplaceAllStringFunc(s.command, func(id string) string {
			if real, ok := ids[id]; ok {
				return real
			}
			return id
		})
		got := typed(t, addr, command)
		if len(got) != len(s.reply) {
			t.Fatalf("> %s\nanswers:\n%s\nREADME.md says:\n%s", command, strings.Join(got, "\n"), strings.Join(s.reply, "\n"))
		}
		for i := range got {
			if !sameLine(s.reply[i], got[i], ids) {
				t.Errorf("> %s\nline %d is %s, README.md says %s", command, i+1, got[i], s.reply[i])
			}
		}
	}
}

// step is one command of a session and the lines that answer it.
type step struct {
	command string
	reply   []string
}

func session(block string) []step {
	const prompt = "127.0.0.1:5555> "
	var steps []step
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, prompt); ok {
			steps = append(steps, step{command: command})
		} else if len(steps) > 0 {
			last := &steps[len(steps)-1]
			last.reply = append(last.reply, line)
		}
	}
	return steps
}

func uuids() *regexp.Regexp {
	return regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
}

// sameLine compares a line of the README with one that was answered, and learns
// which real id the README's id stands for.
func sameLine(said, got string, ids map[string]string) bool {
	real := uuids().FindAllString(got, -1)
	next := 0
	said = uuids().ReplaceAllStringFunc(said, func(id string) string {
		if next == len(real) {
			return id
		}
		if _, known := ids[id]; !known {
			ids[id] = real[next]
		}
		next++
		return ids[id]
	})
	times := regexp.MustCompile(`\b1[0-9]{12}\b`)
	return times.ReplaceAllString(said, "<time>") == times.ReplaceAllString(got, "<time>")
}

// typed is what redis-cli prints for a command that is typed into it.
func typed(t *testing.T, addr, command string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "redis-cli", "-h", host, "-p", port, "--no-raw")
	cmd.Stdin = strings.NewReader(command + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli (make setup installs it): %v\n%s", err, out)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}

// startForReadme builds the broker, starts it on a free port with nothing on
// disk, and stops it in order when the test ends.
func startForReadme(t *testing.T) (addr string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fila")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Not CommandContext: the broker has to get its signal and not be killed.
	cmd := exec.Command(bin, "--storage.engine", "memory", "--server.listen_addr", "127.0.0.1:0", "--log.format", "json") //nolint:noctx // see above
	cmd.Dir = t.TempDir()
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(address)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Message, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "ready" {
				address <- line.Address
			}
		}
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		for range address { //nolint:revive // until the log ends, as Wait must come after the last read
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("stopped with %v", err)
		}
	})
	select {
	case addr = <-address:
	case <-time.After(20 * time.Second):
	}
	if addr == "" {
		t.Fatal("it never said that it is ready")
	}
	return addr
}
