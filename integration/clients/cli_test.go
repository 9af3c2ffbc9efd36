package clients_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// redisCLI is a hand that runs redis-cli for each command, as a script would.
type redisCLI struct{ options []string }

func openRedisCLI(t *testing.T, addr string, protocol int) (hand, string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	if protocol == 0 {
		protocol = 2 // the default without --json
	}
	out, err := exec.CommandContext(t.Context(), "redis-cli", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &redisCLI{[]string{"-h", host, "-p", port, "-e", "--quoted-input", "--quoted-json", "-" + strconv.Itoa(protocol)}},
		strings.Fields(string(out))[1]
}

func (c *redisCLI) do(_ string, args ...string) (reply, error) {
	words := c.options
	for _, a := range args {
		var b strings.Builder
		b.WriteByte('"') // quote everything: an unquoted backslash would begin an escape
		for i := range len(a) {
			fmt.Fprintf(&b, `\x%02x`, a[i])
		}
		words = append(words, b.String()+`"`)
	}
	cmd := exec.Command("redis-cli", words...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		complaint := strings.TrimSpace(said.String())
		if regexp.MustCompile(`^[A-Z]+ `).MatchString(complaint) {
			return nil, replyError(complaint)
		}
		return nil, fmt.Errorf("%w: %s", err, complaint)
	}
	v, rest, err := parseCLI(strings.TrimSpace(out.String()))
	if err == nil && rest != "" {
		err = fmt.Errorf("redis-cli prints %q after the reply", rest)
	}
	return v, err
}

// parseCLI parses a value as printed by --quoted-json of redis-cli 7.0. That is not quite JSON:
// quotes within a text are not escaped for a JSON parser.
func parseCLI(s string) (v reply, rest string, err error) {
	switch {
	case s == "":
		return nil, "", errors.New("redis-cli prints nothing")
	case s[0] == '"':
		return parseCLIText(s[1:])
	case s[0] == '[' || s[0] == '{':
		all := []reply{}
		is := s[0]
		for s = s[1:]; s != "" && s[0] != ']' && s[0] != '}'; s = strings.TrimLeft(s, ",:") {
			if v, s, err = parseCLI(s); err != nil {
				return nil, "", err
			}
			all = append(all, v)
		}
		if s == "" {
			return nil, "", errors.New("redis-cli ends within an array")
		}
		if is == '{' {
			return mapping(all), s[1:], nil
		}
		return all, s[1:], nil
	}
	word := regexp.MustCompile(`^[^,:\]}]+`).FindString(s)
	if s = s[len(word):]; word == "null" {
		return nil, s, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	return n, s, err
}

// parseCLIText parses a text up to its closing quote. Escapes begin with two backslashes: one for
// the byte and one for JSON.
func parseCLIText(s string) (v reply, rest string, err error) {
	var b strings.Builder
	for s != "" && s[0] != '"' {
		if !strings.HasPrefix(s, `\\`) {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		s = s[2:]
		switch {
		case strings.HasPrefix(s, `\\`):
			b.WriteByte('\\')
			s = s[2:]
		case len(s) > 3 && s[0] == 'x':
			n, err := strconv.ParseUint(s[1:3], 16, 8)
			if err != nil {
				return nil, "", err
			}
			b.WriteByte(byte(n))
			s = s[3:]
		case s != "" && strings.IndexByte(`nrtab"`, s[0]) >= 0:
			b.WriteByte("\n\r\t\a\b\""[strings.IndexByte(`nrtab"`, s[0])])
			s = s[1:]
		default:
			return nil, "", fmt.Errorf("redis-cli escapes %.10q", s)
		}
	}
	if s == "" {
		return nil, "", errors.New("redis-cli ends within a text")
	}
	return b.String(), s[1:], nil
}
