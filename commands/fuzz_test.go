package commands

import (
	"strings"
	"testing"
)

// FuzzCommands sends whatever comes to a whole server: nothing panics, each
// command gets one reply, and the reply is well formed.
func FuzzCommands(f *testing.F) {
	for _, c := range everyCommand() {
		f.Add(strings.ReplaceAll(c.usageLine(), " ", "\x00"), false)
		for _, e := range c.spec.Examples {
			f.Add(strings.ReplaceAll(e.Command, " ", "\x00"), true)
		}
	}
	f.Add("SUBSCRIBE\x00a\x00a\x00\xff", true)
	f.Fuzz(func(t *testing.T, line string, resp3 bool) {
		s := newServer(t, nil)
		c := s.connect("")
		c.do("FILA.QUEUE", "CREATE", "orders")
		if resp3 {
			c.do("HELLO", "3")
		}
		got := c.do(strings.Split(line, "\x00")...)
		if got == "" {
			if len(c.window) == 0 && !c.closed && c.session.mute == muteNone {
				t.Fatalf("%q: no reply", line)
			}
			return
		}
		_, rest, err := decode(got)
		name, _, _ := strings.Cut(strings.ToUpper(line), "\x00")
		for strings.HasSuffix(name, "SUBSCRIBE") && rest != "" && err == nil { // a confirmation for each name
			_, rest, err = decode(rest)
		}
		if err != nil || rest != "" {
			t.Fatalf("%q: reply %q: %v", line, got, err)
		}
	})
}
