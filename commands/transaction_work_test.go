//go:build !race

package commands

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// The bound of the work of a transaction in units: as much as two turns, and some for each command.
const (
	workQueued   = 300 // commands of the largest transaction that the test allows
	workMost     = 2*2048 + workPerEntry*workQueued
	workPerEntry = 16
	workKeys     = 3000
	workQueues   = 500
)

// busyStore is the store of a broker with very many keys, queues, leases and settings.
func busyStore(t *testing.T) (store *storage.Memory, id string) {
	t.Helper()
	store = storage.NewMemory()
	s := newServerOn(t, store, store, nil)
	c := s.connect("")
	var all [][]string
	add := func(line string, values ...any) { all = append(all, strings.Fields(fmt.Sprintf(line, values...))) }
	add("FILA.QUEUE CREATE orders")
	add("FILA.BUDGET SET paid")
	for i := range workQueues {
		add("FILA.QUEUE CREATE queue-%d NODLQ", i)
		add("FILA.KEY SET orders key-%d WEIGHT 2", i)
		add("FILA.SIGNAL ADD one name-%d", i)
		add("FILA.ENQUEUE orders later KEY later-%d DELAY 1000000000", i)
	}
	for i := range 400 {
		add("FILA.TOPIC BIND events queue-%d", i)
		add("FILA.THROTTLE SET throttle-%d CONCURRENCY 1", i)
		add("FILA.ENQUEUE queue-%d busy THROTTLE orders", i)
		add("FILA.QUEUE PAUSE queue-%d OUT", i)
	}
	for i := range workKeys {
		add("FILA.ENQUEUE orders payload KEY key-%d THROTTLE limited", i)
	}
	add("FILA.LEASE orders COUNT 2000 VISIBILITY 1000000000")
	add("FILA.THROTTLE SET limited CONCURRENCY 1")
	add("FILA.THROTTLE SET orders CONCURRENCY 1")
	c.send(all...)
	for wire := c.received(); wire != ""; {
		v, rest, err := decode(wire)
		if err != nil || v.kind == '-' && !strings.Contains(v.text, "signals") {
			t.Fatalf("the scene is not set: %v %s", err, v.text)
		}
		if wire = rest; v.kind == '$' {
			id = v.text
		}
	}
	s.Advance(time.Second)
	return store, id
}

// workForms are the forms of commands that do most in a transaction, where those are not their examples:
// <i> is the number of the repetition.
func workForms() map[string][]string {
	return map[string][]string{
		"BGSAVE":            {"BGSAVE"},
		"FILA.EXPLAIN":      {"FILA.EXPLAIN orders KEY key-2500"},
		"FILA.KEY GET":      {"FILA.KEY GET orders later-7"},
		"FILA.KEYS":         {"FILA.KEYS orders COUNT 300"},
		"FILA.LEASE":        {"FILA.LEASE orders COUNT 10"},
		"FILA.PUBLISH":      {"FILA.PUBLISH nothing payload"},
		"FILA.PURGE":        {"FILA.PURGE orders"},
		"FILA.QUEUE APPLY":  {`FILA.QUEUE APPLY "{\"queues\":[{\"name\":\"orders\"}]}"`},
		"FILA.QUEUE DELETE": {"FILA.QUEUE DELETE queue-<i> FORCE"},
		"FILA.QUEUE LIST":   {"FILA.QUEUE CREATE new-<i> NODLQ", "FILA.QUEUE LIST"},
		"FILA.QUEUE PAUSE":  {"FILA.QUEUE PAUSE orders OUT", "FILA.QUEUE RESUME orders OUT"},
		"FILA.SCRIPT LIST":  {"FILA.QUEUE CREATE new-<i> NODLQ", "FILA.SCRIPT LIST"},
		"FILA.SIGNAL DEL":   {"FILA.SIGNAL DEL one"},
		"FILA.SIGNAL GET":   {"FILA.SIGNAL GET one"},
		"FILA.STATS":        {"FILA.STATS orders", "FILA.STATS"},
		"FILA.THROTTLE SET": {"FILA.THROTTLE SET orders RATE 1 BY COST", "FILA.THROTTLE SET orders RATE 1"},
		"FILA.TOPIC BIND":   {"FILA.TOPIC BIND events queue-<i>", "FILA.TOPIC UNBIND events queue-<i>"},
		"KEYS":              {"FILA.QUEUE CREATE new-<i> NODLQ", "KEYS *"},
		"MEMORY USAGE":      {"MEMORY USAGE orders SAMPLES 0"},
		"SCAN":              {"SCAN 0 COUNT 300"},
	}
}

// No transaction of the largest size makes a turn of more than a bounded length, whichever command it
// repeats, however many keys, queues, leases and settings there are: what a command does in slices
// elsewhere is barred or refused in it.
func TestNoCommandExceedsTheWorkOfATransaction(t *testing.T) {
	store, id := busyStore(t)
	forms := workForms()
	for _, c := range everyCommand() {
		if c.Spec.Parse == nil || c.Spec.Immediate || c.Spec.Has("no_multi") || c.Spec.Group == pubsubGroup || c.Name == "monitor" {
			continue
		}
		form := forms[c.Display]
		if delete(forms, c.Display); form == nil {
			for _, e := range c.Spec.Examples {
				if line := e.Command(); calledBy(c, strings.Fields(line)) {
					form = append(form, strings.NewReplacer("<id>", id, "<receipt>", id+":1").Replace(line))
				}
			}
		}
		t.Run(c.Display, func(t *testing.T) {
			most := workOfTransaction(t, store.Clone(), modeOf(c), form)
			if most > workMost {
				t.Errorf("%d units in one turn, want at most %d", most, workMost)
			}
		})
	}
	for name := range forms {
		t.Errorf("there is no %s that may be queued", name)
	}
}

// workOfTransaction returns the units of the largest turn of a transaction that repeats a form.
func workOfTransaction(t *testing.T, store *storage.Memory, mode resp.Mode, form []string) int {
	t.Helper()
	s := newServerOn(t, store, store, func(c *Config) { c.Limits.Transaction = workQueued })
	c := s.connectTo("", mode, false)
	for n := workQueued / max(len(form), 1); n > 0; n /= 2 {
		if c.do("MULTI"); queueForm(t, c, form, n) {
			break
		}
		c.do("DISCARD")
	}
	s.LargestTurn()
	c.do("EXEC")
	return s.LargestTurn()
}

// queueForm queues n repetitions of a form, and reports whether the transaction may be so large.
func queueForm(t *testing.T, c *fakeConn, form []string, n int) bool {
	t.Helper()
	for i := range n {
		for _, line := range form {
			args, err := splitLine(strings.ReplaceAll(line, "<i>", strconv.Itoa(i)))
			if err != nil {
				t.Fatal(err)
			}
			switch got := c.do(args...); {
			case strings.HasPrefix(got, "+QUEUED"):
			case strings.HasPrefix(got, "-TOOBIG"):
				return false
			default:
				t.Fatalf("%s: %s", line, got)
			}
		}
	}
	return true
}
