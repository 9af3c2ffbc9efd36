package clients_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// Special values of the blocking time for hand.do: not blocking, and unlimited. Other values are
// milliseconds.
const (
	atOnce  = "-"
	forever = "0"
)

// reply is what an application receives: a string, an int64, nil, a []reply or a mapping.
type reply any

// mapping is a map in the received order: alternating names and values.
type mapping []reply

// replyError is an error of the broker, as the library reports it.
type replyError string

func (e replyError) Error() string { return string(e) }

// hand executes commands with a library. It is used by one goroutine at a time.
type hand interface {
	do(wait string, args ...string) (reply, error)
}

// program is a hand in a separate process.
type program struct {
	version string // of the library
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  *lockedBuffer
}

// lockedBuffer collects the standard error of a process.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startProgram starts a hand. protocol is 2, 3, or 0 for the library's default; more are further variables
// of its environment.
func startProgram(t *testing.T, command []string, addr string, protocol int, more ...string) *program {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), environment(t, addr, protocol)...), more...)
	p := &program{stderr: &lockedBuffer{}}
	cmd.Stderr = p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()         // makes it exit
		_ = cmd.Process.Kill() // it may be blocked in a call, or have exited
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	p.in, p.out = in, bufio.NewReader(out)
	if p.version, err = p.line(); err != nil {
		t.Fatalf("%s did not start: %v", strings.Join(command, " "), err)
	}
	return p
}

func environment(t *testing.T, addr string, protocol int) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	resp := ""
	if protocol != 0 {
		resp = strconv.Itoa(protocol)
	}
	return []string{"FILA_HOST=" + host, "FILA_PORT=" + port, "FILA_RESP=" + resp}
}

// line reads a line, with a timeout: a hand that hangs fails its row.
func (p *program) line() (string, error) {
	type result struct {
		text string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := p.out.ReadString('\n')
		read <- result{strings.TrimSuffix(text, "\n"), err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			return "", fmt.Errorf("the program ended: %s", p.stderr)
		}
		return r.text, nil
	case <-time.After(testkit.Patience()):
		return "", fmt.Errorf("no answer within %s: %s", testkit.Patience(), p.stderr)
	}
}

func (p *program) do(wait string, args ...string) (reply, error) {
	words := []string{wait}
	for _, a := range args {
		words = append(words, "$"+hex.EncodeToString([]byte(a)))
	}
	if _, err := io.WriteString(p.in, strings.Join(words, " ")+"\n"); err != nil {
		return nil, fmt.Errorf("the program ended: %s", p.stderr)
	}
	text, err := p.line()
	if err != nil {
		return nil, err
	}
	answer, rest, err := parseReply(strings.Fields(text))
	if err == nil && len(rest) > 0 {
		return nil, fmt.Errorf("%d words too many in the answer %q", len(rest), text)
	}
	return answer, err
}

// parseReply parses one value of an answer and returns the remaining words.
func parseReply(words []string) (v reply, rest []string, err error) {
	if len(words) == 0 {
		return nil, nil, errors.New("the answer ends early")
	}
	mark, tail := words[0][0], words[0][1:]
	words = words[1:]
	switch mark {
	case '_':
		return nil, words, nil
	case ':':
		n, err := strconv.ParseInt(tail, 10, 64)
		return n, words, err
	case '$', '-', '!':
		text, err := hex.DecodeString(tail)
		switch {
		case err != nil:
			return nil, nil, err
		case mark == '-':
			return nil, words, replyError(text)
		case mark == '!':
			return nil, words, errors.New(string(text))
		}
		return string(text), words, nil
	case '*', '%':
		n, err := strconv.Atoi(tail)
		if err != nil {
			return nil, nil, err
		}
		if mark == '%' {
			n *= 2
		}
		all := make([]reply, n)
		for i := range all {
			if all[i], words, err = parseReply(words); err != nil {
				return nil, nil, err
			}
		}
		if mark == '%' {
			return mapping(all), words, nil
		}
		return all, words, nil
	}
	return nil, nil, fmt.Errorf("an answer begins with %q", mark)
}

// text converts a value to a text: some libraries convert texts to numbers.
func text(v reply) string {
	if v == nil {
		return "(nil)"
	}
	return fmt.Sprint(v)
}

// number converts a value to a number, -1 if it is none.
func number(v reply) int64 {
	n, err := strconv.ParseInt(text(v), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// list returns an array, or nil if the value is none.
func list(v reply) []reply {
	all, _ := v.([]reply)
	return all
}

// field returns a field of a map, which is an array in RESP2.
func field(v reply, name string) reply {
	pairs, is := v.(mapping)
	if !is {
		pairs = list(v)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if text(pairs[i]) == name {
			return pairs[i+1]
		}
	}
	return nil
}
