package integration_test

import (
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// play executes the commands of a session and compares the replies. Ids and times vary: each id in
// the document stands for the id received at its first occurrence, and times match any time.
func play(t *testing.T, addr string, steps []step, ids map[string]string) {
	t.Helper()
	for _, s := range steps {
		command := uuids().ReplaceAllStringFunc(s.command, func(id string) string {
			if answered, ok := ids[id]; ok {
				return answered
			}
			return id
		})
		got := typed(t, addr, command)
		if len(got) != len(s.reply) {
			t.Fatalf("> %s\nanswers:\n%s\nthe document says:\n%s", command, strings.Join(got, "\n"), strings.Join(s.reply, "\n"))
		}
		for i := range got {
			if !sameLine(s.reply[i], got[i], ids) {
				t.Errorf("> %s\nline %d is %s, the document says %s", command, i+1, got[i], s.reply[i])
			}
		}
	}
}

// step is one command of a session with the lines of its reply.
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

// sameLine compares a line of a document with a received one, and records which real id the
// document's id stands for. Times in milliseconds may be others, and for how long a
// lease is out.
func sameLine(said, got string, ids map[string]string) bool {
	answered := uuids().FindAllString(got, -1)
	next := 0
	said = uuids().ReplaceAllStringFunc(said, func(id string) string {
		if next == len(answered) {
			return id
		}
		if _, known := ids[id]; !known {
			ids[id] = answered[next]
		}
		next++
		return ids[id]
	})
	times := regexp.MustCompile(`\b1[0-9]{12}\b|is out for ([0-9]+s|less than a second)\b`)
	return times.ReplaceAllString(said, "<time>") == times.ReplaceAllString(got, "<time>")
}

// typed returns the output of redis-cli for a typed command.
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
		t.Fatalf("redis-cli (make setup-tests installs it): %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if last := len(lines) - 1; last > 0 && took().MatchString(lines[last]) {
		lines = lines[:last]
	}
	return lines
}

func TestTheTimeThatRedisCLIWritesIsNoPartOfTheReply(t *testing.T) {
	t.Parallel()
	addr := kit.Serve(t, "--storage.engine", "memory").Addr()
	typed(t, addr, "FILA.QUEUE CREATE q")
	if got := typed(t, addr, "FILA.LEASE q BLOCK 600"); !slices.Equal(got, []string{"(empty array)"}) {
		t.Errorf("%q", got)
	}
}

// took finds the time that redis-cli writes behind a reply for which it has waited half a second or longer.
func took() *regexp.Regexp { return regexp.MustCompile(`^\(\d+\.\d\ds\)$`) }
