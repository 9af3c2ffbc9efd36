package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// redisRelease is the release of redis-server with which Fila is compared.
const redisRelease = "7.0."

// conversation is the commands of one client.
type conversation struct {
	name string
	said []utterance
}

type utterance struct {
	text  string // as written in the file
	bytes []byte
}

// TestFilaAnswersLikeRedis sends the conversations of testdata/differential.txt to both servers.
// Every difference must be in the list of differences, and every entry of the list must occur.
func TestFilaAnswersLikeRedis(t *testing.T) {
	t.Parallel()
	open, locked := startRedis(t), startRedis(t, "--requirepass", "secret")
	fila := kit.Serve(t, "--storage.engine", "memory").Addr()
	secret := kit.Prepare(t, "--storage.engine", "memory", "--auth.password", "secret")
	kit.Launch(t, secret)
	filaLocked := secret.Addr()
	unused := differences()
	for _, c := range conversations(t) {
		redisAddr, filaAddr := open, fila
		if strings.HasPrefix(c.name, "password") {
			redisAddr, filaAddr = locked, filaLocked
		}
		for _, proto := range []int{2, 3} {
			if proto == 3 && strings.HasPrefix(c.name, "password") {
				continue // an unauthenticated client cannot change it
			}
			want, got := converse(t, redisAddr, proto, &c), converse(t, filaAddr, proto, &c)
			for _, d := range compare(&c, want, got) {
				if reason := differences()[d.what]; reason == "" {
					t.Errorf("RESP%d, %s\nredis %q\nfila  %q", proto, d.what, d.redis, d.fila)
				}
				delete(unused, d.what)
			}
		}
	}
	for what := range unused {
		t.Errorf("no longer different, or not said any more: %s", what)
	}
}

// The list of Redis' commands, on which redis-compat.md and a test of package commands rely,
// matches the real server.
func TestTheListOfRedisCommandsIsItsOwn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "internal", "broker", "compat", "redis-7.0.15-commands.txt"))
	if err != nil {
		t.Fatal(err)
	}
	c := conversation{name: "list", said: []utterance{{bytes: framed("COMMAND", "LIST")}}}
	got := commandNames(string(converse(t, startRedis(t), 2, &c)))
	want := strings.Fields(string(text))
	if !slices.Equal(got, want) {
		t.Errorf("the list has %d commands, redis-server %d; missing %v, too many %v", len(want), len(got), without(got, want), without(want, got))
	}
}

// commandNames parses and sorts the reply to COMMAND LIST.
func commandNames(wire string) (names []string) {
	for line := range strings.SplitSeq(wire, "\r\n") {
		if line != "" && !strings.ContainsAny(line[:1], "*$") {
			names = append(names, line)
		}
	}
	slices.Sort(names)
	return names
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// difference is a difference found; what is the conversation and the utterance.
type difference struct{ what, redis, fila string }

// compare compares reply by reply if there are as many replies as utterances, else it compares the
// whole.
func compare(c *conversation, redis, fila []byte) (out []difference) {
	r, f := replies(redis), replies(fila)
	if len(r) != len(c.said) || len(f) != len(c.said) {
		if !bytes.Equal(redis, fila) {
			out = append(out, difference{c.name, string(redis), string(fila)})
		}
		return out
	}
	for i, u := range c.said {
		if a, b := mask(u.text, r[i]), mask(u.text, f[i]); a != b {
			out = append(out, difference{c.name + ": " + u.text, a, b})
		}
	}
	return out
}

// mask replaces what varies between connections or runs.
func mask(said, reply string) string {
	reply = regexp.MustCompile(`(\$2\r\nid\r\n):\d+`).ReplaceAllString(reply, "$1:<id>")
	switch {
	case said == "> CLIENT ID":
		return regexp.MustCompile(`\d+`).ReplaceAllString(reply, "<id>")
	case said == "> CLIENT INFO":
		reply = regexp.MustCompile(`^.[\d]+\r\n(txt:)?`).ReplaceAllString(reply, "")
		return regexp.MustCompile(`=\S*`).ReplaceAllString(reply, "=")
	case strings.HasPrefix(said, "> COMMAND INFO"), strings.HasPrefix(said, "> CONFIG GET"): // unordered
		lines := strings.Split(reply, "\r\n")
		slices.Sort(lines)
		return strings.Join(lines, "\r\n")
	}
	return reply
}

// converse sends all commands of a conversation and returns the bytes received until its end.
func converse(t *testing.T, addr string, proto int, c *conversation) []byte {
	t.Helper()
	conn := kit.Dial(t, addr)
	defer conn.Close()
	if proto == 3 {
		greet(t, conn)
	}
	var out bytes.Buffer
	for _, u := range c.said {
		out.Write(u.bytes)
	}
	const end = "end-of-conversation"
	out.Write(framed("PING", end))
	if _, err := conn.Write(out.Bytes()); err != nil && !errors.Is(err, io.ErrClosedPipe) && !isReset(err) {
		t.Fatal(err)
	}
	var in []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := conn.Read(buf)
		in = append(in, buf[:n]...)
		if bytes.Contains(in, []byte(end)) {
			in = in[:bytes.LastIndexAny(in[:bytes.Index(in, []byte(end))-2], "$")]
			in = bytes.TrimSuffix(in, []byte("*2\r\n$4\r\npong\r\n")) // reply to a subscriber
			break
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%s: %s does not end the conversation: %q", c.name, addr, in)
			}
			in = append(in, "<end>"...)
			break
		}
	}
	return in
}

// greet switches to RESP3.
func greet(t *testing.T, conn net.Conn) {
	t.Helper()
	const begin = "begin-of-conversation\r\n"
	if _, err := conn.Write(append(framed("HELLO", "3"), framed("PING", strings.TrimSpace(begin))...)); err != nil {
		t.Fatal(err)
	}
	var in []byte
	for buf := make([]byte, 4<<10); !bytes.HasSuffix(in, []byte(begin)); {
		n, err := conn.Read(buf)
		if in = append(in, buf[:n]...); err != nil {
			t.Fatalf("%s does not speak RESP3: %v after %q", conn.RemoteAddr(), err, in)
		}
	}
}

func isReset(err error) bool {
	return strings.Contains(err.Error(), "reset by peer") || strings.Contains(err.Error(), "broken pipe")
}

// framed returns a command in wire format.
func framed(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.Bytes()
}

// replies splits received bytes into replies; nil if that is impossible.
func replies(wire []byte) []string {
	var out []string
	for len(wire) > 0 {
		n := replyLength(wire)
		if n == 0 {
			return nil
		}
		out, wire = append(out, string(wire[:n])), wire[n:]
	}
	return out
}

// replyLength returns the length of the first reply in wire, or 0 if it is incomplete.
func replyLength(wire []byte) int {
	end := bytes.Index(wire, []byte("\r\n"))
	if end < 0 {
		return 0
	}
	head, at := wire[:end], end+2
	n, err := strconv.Atoi(string(head[1:]))
	switch head[0] {
	case '+', '-', ':', '_', '#', ',':
		return at
	case '$', '=':
		if err != nil || len(wire) < at+n+2 {
			return 0
		}
		if n < 0 {
			return at
		}
		return at + n + 2
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return 0
	}
	if err != nil {
		return 0
	}
	for range n {
		l := replyLength(wire[at:])
		if l == 0 {
			return 0
		}
		at += l
	}
	return at
}

// conversations parses the file.
func conversations(t *testing.T) (all []conversation) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "differential.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		kind, rest, _ := strings.Cut(line, " ")
		if line == "" || line[0] == '#' {
			continue
		}
		if kind == "==" {
			all = append(all, conversation{name: rest})
			continue
		}
		c := &all[len(all)-1]
		u := utterance{text: line}
		if kind == ">" {
			u.bytes = framed(words(t, rest)...)
		} else {
			raw, err := strconv.Unquote(rest)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			u.bytes = []byte(raw)
		}
		c.said = append(c.said, u)
	}
	return all
}

// words splits a line at blanks; quoted words are Go strings.
func words(t *testing.T, line string) (out []string) {
	t.Helper()
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			out, line = append(out, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out, line = append(out, word), line[len(quoted):]
	}
	return out
}

// startRedis starts a redis-server of that release and returns its address.
func startRedis(t *testing.T, args ...string) string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "redis-server", "--version").Output()
	if err != nil {
		t.Fatalf("redis-server (make setup-tests installs it): %v", err)
	}
	if !strings.Contains(string(version), "v="+redisRelease) {
		leftOut(t, fmt.Sprintf("redis-server %sx is what Fila is compared with, not %s", redisRelease, version))
	}
	addr := kit.Reserve(t)
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command("redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--loglevel", "notice"}, args...)...)
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no data to lose
		_ = cmd.Wait()         // the error states that it was killed
	})
	testkit.Eventually(t, "redis-server listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		return err == nil && conn.Close() == nil
	})
	return addr
}
