//go:build !race

package commands

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/command"
)

// Each command that a transaction may have is counted once in INFO commandstats when EXEC runs it.
func TestEveryCommandOfATransactionIsCounted(t *testing.T) {
	tried := 0
	for _, c := range everyCommand() {
		if c.Spec.Parse == nil || c.Spec.Immediate || c.Spec.Has("no_multi") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			conn := newServer(t, nil).connect("")
			eachExample(t, c, func(e command.Example, args []string) string {
				if !calledBy(c, args) {
					return conn.do(args...)
				}
				before, want := callsOf(t, conn, c), 1
				if c.Name == "info" {
					want++ // that of callsOf
				}
				conn.do("MULTI")
				if queued := conn.do(args...); !strings.HasPrefix(queued, "+QUEUED") {
					conn.do("DISCARD")
					return "" // an example of a mistake
				}
				got := conn.do("EXEC")
				if strings.HasPrefix(got, "-EXECABORT") {
					return ""
				}
				tried++
				if n := callsOf(t, conn, c) - before; n != want {
					t.Errorf("%s: %d calls, want %d", e.Command(), n, want)
				}
				return got
			})
		})
	}
	if tried < 50 {
		t.Errorf("only %d examples were tried", tried)
	}
}

// callsOf returns how often a command was executed, as INFO says.
func callsOf(t *testing.T, conn *fakeConn, c *entry) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^cmdstat_` + regexp.QuoteMeta(c.Name) + `:calls=(\d+)`).FindStringSubmatch(conn.do("INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
