//go:build !race

package commands

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
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
			receipt, id := "", ""
			for _, e := range c.Spec.Examples {
				args, err := splitLine(strings.NewReplacer("<receipt>", receipt, "<id>", id).Replace(e.Command()))
				if err != nil {
					t.Fatal(err)
				}
				own, want := calledBy(c, args), 1
				if c.Name == "info" {
					want++ // that of callsOf
				}
				before := callsOf(t, conn, c)
				var got string
				if own {
					conn.do("MULTI")
					if queued := conn.do(args...); !strings.HasPrefix(queued, "+QUEUED") {
						conn.do("DISCARD")
						continue // an example of a mistake
					}
					if got = conn.do("EXEC"); strings.HasPrefix(got, "-EXECABORT") {
						t.Logf("%s: %s", e.Command(), got)
						continue
					}
				} else {
					got = conn.do(args...)
				}
				if own {
					tried++
				}
				if found := receiptPattern().FindString(got); found != "" {
					receipt = found
				}
				if found := uuid().FindString(got); found != "" {
					id = found
				}
				if n := callsOf(t, conn, c) - before; own && n != want {
					t.Errorf("%s: %d calls", e.Command(), n)
				}
			}
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
