//go:build !race

package commands

import (
	"testing"

	"github.com/faisca/fila/resp"
)

// What the hot commands may allocate on their connection, in counts: these hold on
// every machine, as times do not. Who makes one cheaper lowers its budget; who needs
// more says why in the commit. The race detector allocates on its own.

func TestParsingAllocatesWithinItsBudget(t *testing.T) {
	payload := string(make([]byte, 256))
	for _, x := range []struct {
		name   string
		budget float64
		args   []string
	}{
		// The call, and the record that the loop is given; options are lists.
		{"enqueue", 2, []string{"FILA.ENQUEUE", "orders", payload, "KEY", "tenant-1"}},
		{"enqueue with options", 4, []string{"FILA.ENQUEUE", "orders", payload, "KEY", "tenant-1", "WEIGHT", "3", "THROTTLE", "lane", "HEADER", "trace", "7f3a"}},
		{"lease", 1, []string{"FILA.LEASE", "orders", "COUNT", "16", "BLOCK", "5000"}},
		{"ack", 1, []string{"FILA.ACK", "orders", "0194f3b0-0000-7000-8000-000000000000:1"}},
	} {
		n := parsing(t, x.args)
		for range 4 { // in some sessions two of the names share a place of their cache, by chance
			n = min(n, parsing(t, x.args))
		}
		if n > x.budget {
			t.Errorf("%s: %v allocations, the budget is %v", x.name, n, x.budget)
		}
	}
}

// parsing counts the allocations of a command in a session of its own.
func parsing(t *testing.T, args []string) float64 {
	t.Helper()
	s := newServer(t, nil)
	c := s.connect("").session
	words := commandsOf(args)[0].Args
	return testing.AllocsPerRun(200, func() {
		cmd, rest, err := c.find(words)
		if err != nil {
			t.Fatal(err)
		}
		if err = c.in.scan(cmd, rest); err != nil {
			t.Fatal(err)
		}
		call, err := cmd.spec.Parse(&c.in)
		if p, ok := call.(preparer); ok && err == nil {
			err = p.Prepare(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestRenderingAllocatesWithinItsBudget(t *testing.T) {
	s := newServer(t, nil)
	for _, x := range []struct {
		name   string
		budget float64
		call   call
	}{
		{"enqueue", 0, &enqueueCall{}},
		{"lease of 16", 49, leaseOf16(t, s)},
		{"ack", 0, &ackCall{}},
	} {
		var w resp.Writer // it keeps what is written: now and then it grows, less than once a run
		n := testing.AllocsPerRun(200, func() {
			if err := x.call.Render(s.handler, &w); err != nil {
				t.Fatal(err)
			}
		})
		if n > x.budget {
			t.Errorf("%s: %v allocations, the budget is %v", x.name, n, x.budget)
		}
	}
}
