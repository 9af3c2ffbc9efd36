package integration_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// sums returns the sums of signals by field, as numbers.
func sums(t *testing.T, reply any) []map[string]float64 {
	t.Helper()
	list, ok := reply.([]any)
	if !ok {
		t.Fatalf("%v is no array of signals", reply)
	}
	all := make([]map[string]float64, len(list))
	for i, signal := range list {
		all[i] = map[string]float64{}
		for name, v := range kit.Mapped(t, signal) {
			if n, err := strconv.ParseFloat(fmt.Sprint(v), 64); err == nil {
				all[i][name] = n
			}
		}
	}
	return all
}

// total is the sum of a signal that never fades, 0 if there is none.
func total(t *testing.T, c *redis.Client, subject, name string) float64 {
	t.Helper()
	list := sums(t, kit.Do(t, c, "FILA.SIGNAL", "GET", subject, name))
	if len(list) == 0 {
		return 0
	}
	return list[0]["all"]
}

// addition is one of the fixed additions.
type addition struct {
	subject string
	at      int64 // Unix milliseconds
	v       float64
}

// fixedAdditions returns n additions over three days before a time, to eleven subjects.
func fixedAdditions(n int, end int64) []addition {
	rng := rand.New(rand.NewPCG(5500, 0)) //nolint:gosec // the same in each run
	all := make([]addition, n)
	for i := range all {
		back := int64(math.Exp(rng.Float64() * math.Log(3*24*3600_000))) // as many of minutes as of days
		all[i] = addition{subject: fmt.Sprint("subject-", i%11), at: end - back, v: float64(1 + rng.IntN(1_000_000))}
	}
	return all
}

// Sums are compared with that of one addition of 1 at a known time, read at the same moment, so the
// time of the reading does not matter.
func TestAdditionsToSignalsSurviveKills(t *testing.T) {
	t.Parallel()
	const n, kills, pipeline = 5500, 3, 250
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	end := kit.Do(t, c, "TIME").([]any)[0]
	seconds, err := strconv.ParseInt(fmt.Sprint(end), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	last := seconds*1000 - 1000
	kit.Do(t, c, "FILA.SIGNAL", "ADD", "unit", "n", 1, "AT", last)
	additions := fixedAdditions(n, last)
	killed := 0
	for i, batch := range slices.Collect(slices.Chunk(additions, pipeline)) {
		p := c.Pipeline()
		for _, a := range batch {
			p.Do(t.Context(), "FILA.SIGNAL", "ADD", a.subject, "n", a.v, "AT", a.at)
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i%(n/pipeline/(kills+1)) == 2 && killed < kills {
			killed++
			kit.Kill(t, b)
			kit.Start(t, b)
		}
	}
	if killed != kills {
		t.Fatalf("the broker was killed %d times", killed)
	}
	p := c.TxPipeline()
	unit := p.Do(t.Context(), "FILA.SIGNAL", "GET", "unit", "n")
	replies := map[string]*redis.Cmd{}
	for _, a := range additions[:11] {
		replies[a.subject] = p.Do(t.Context(), "FILA.SIGNAL", "GET", a.subject, "n")
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := sums(t, unit.Val())[0]
	for subject, reply := range replies {
		got := sums(t, reply.Val())[0]
		for window, length := range map[string]float64{"1m": 60e3, "5m": 300e3, "1h": 3600e3, "24h": 86400e3, "all": math.Inf(1)} {
			want := 0.0
			for _, a := range additions {
				if a.subject == subject {
					want += a.v * math.Exp(float64(a.at-last)/length)
				}
			}
			if ratio := got[window] / one[window]; math.Abs(ratio-want) > 1e-9*want {
				t.Errorf("%s in %s is %.15g, want %.15g", subject, window, ratio, want)
			}
		}
	}
}

// A turn writes the checkpoint that is due before it does what it was asked, in one batch. So the
// reply to a command that was sent after the interval says that the counts from before are written.
func TestAKillTakesAtMostOneCheckpointOfSignals(t *testing.T) {
	t.Parallel()
	const checkpoint, before, after = 100, 300, 50
	b := kit.Serve(t, "--signals.checkpoint_ms", strconv.Itoa(checkpoint))
	c := kit.Connect(t, b.Addr(), 2)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "SIGNALS", "ON")
	enqueue := func(n int) {
		t.Helper()
		p := c.Pipeline()
		for range n {
			p.Do(t.Context(), "FILA.ENQUEUE", "q", "x", "KEY", "acme")
			p.Do(t.Context(), "FILA.SIGNAL", "ADD", "acme", "pages", 2)
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(before)
	written := time.Now()
	testkit.Eventually(t, "a checkpoint is due", func() bool { return time.Since(written) > 2*checkpoint*time.Millisecond })
	kit.Do(t, c, "FILA.SIGNAL", "ADD", "acme", "pages", 2)
	enqueue(after)
	kit.Kill(t, b)
	kit.Start(t, b)
	if got := total(t, c, "acme", "enqueued"); got < before || got > before+after {
		t.Errorf("%v enqueues are recorded, want from %d to %d", got, before, before+after)
	} else {
		t.Logf("%v of %d enqueues are recorded", got, before+after)
	}
	if got := total(t, c, "acme", "pages"); got != 2*(before+after+1) {
		t.Errorf("%v pages, want %d", got, 2*(before+after+1))
	}
	recorded := total(t, c, "acme", "enqueued")
	enqueue(after)
	kit.Stop(t, b)
	kit.Start(t, b)
	if got := total(t, c, "acme", "enqueued"); got != recorded+after {
		t.Errorf("after an orderly stop %v enqueues are recorded, want %v", got, recorded+after)
	}
}

// wire runs commands in one protocol with one client, and returns replies as redis-cli and go-redis
// show them: maps are maps or flat arrays. tx runs commands as one transaction, and returns their
// replies.
type wire struct {
	name string
	do   func(t *testing.T, args ...string) any
	tx   func(t *testing.T, commands ...[]string) any
}

func wires(t *testing.T, addr string) (all []wire) {
	t.Helper()
	for _, protocol := range []int{2, 3} {
		c := kit.Connect(t, addr, protocol)
		all = append(all, wire{fmt.Sprint("go-redis, RESP", protocol), func(t *testing.T, args ...string) any {
			t.Helper()
			var reply any
			var err error
			testkit.Eventually(t, "no other node is taking over", func() bool {
				reply, err = c.Do(t.Context(), anys(args)...).Result()
				return !kit.Loading(err)
			})
			if err != nil {
				return err.Error()
			}
			return reply
		}, func(t *testing.T, commands ...[]string) any {
			t.Helper()
			p := c.TxPipeline()
			for _, args := range commands {
				p.Do(t.Context(), anys(args)...)
			}
			cmds, _ := p.Exec(t.Context())
			replies := make([]any, len(cmds))
			for i, cmd := range cmds {
				if replies[i] = cmd.(*redis.Cmd).Val(); cmd.Err() != nil { //nolint:forcetypeassert // from Do
					replies[i] = cmd.Err().Error()
				}
			}
			return replies
		}}, wire{fmt.Sprint("redis-cli, RESP", protocol), func(t *testing.T, args ...string) any {
			t.Helper()
			out, _ := cli(t, addr, "", append([]string{fmt.Sprint("-", protocol), "--json"}, args...)...)
			var reply any
			if err := json.Unmarshal([]byte(out), &reply); err != nil {
				return strings.TrimPrefix(out, "error:")
			}
			return reply
		}, func(t *testing.T, commands ...[]string) any {
			t.Helper()
			var in strings.Builder
			in.WriteString("MULTI\n")
			for _, args := range commands {
				for _, a := range args {
					fmt.Fprintf(&in, "%q ", a)
				}
				in.WriteString("\n")
			}
			out, _ := cli(t, addr, in.String()+"EXEC\n", fmt.Sprint("-", protocol), "--json")
			lines := strings.Split(out, "\n")
			var reply any
			last := strings.ReplaceAll(lines[len(lines)-1], `error:"`, `"`) // which is no JSON
			if err := json.Unmarshal([]byte(last), &reply); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return reply
		}})
	}
	return all
}

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}

// signalsIn lists the signals of a reply: subject, name, the sum of all, and whether the fields are
// there.
func signalsIn(t *testing.T, reply any) string {
	t.Helper()
	list, ok := reply.([]any)
	if !ok {
		t.Fatalf("%v (%T) is no array", reply, reply)
	}
	var all []string
	for _, signal := range list {
		if m, ok := signal.(map[string]any); ok { // of JSON
			flat := make([]any, 0, 2*len(m))
			for k, v := range m {
				flat = append(flat, k, v)
			}
			signal = flat
		}
		m := kit.Mapped(t, signal)
		for _, field := range []string{"1m", "5m", "1h", "24h", "velocity", "updated_at"} {
			if n, err := strconv.ParseFloat(fmt.Sprint(m[field]), 64); err != nil || math.IsNaN(n) {
				t.Errorf("%s is %v in %v", field, m[field], m)
			}
		}
		if len(m) != 9 {
			t.Errorf("%d fields: %v", len(m), m)
		}
		all = append(all, fmt.Sprint(m["subject"], "/", m["name"], "=", m["all"]))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestSignalsAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, w := range wires(t, b.Addr()) {
		t.Run(w.name, func(t *testing.T) {
			said := func(want string, args ...string) {
				t.Helper()
				if got := strings.Trim(fmt.Sprint(w.do(t, args...)), `"`); !strings.HasPrefix(got, want) {
					t.Errorf("%q: %s, want %s", args, got, want)
				}
			}
			shows := func(want string, args ...string) {
				t.Helper()
				if got := signalsIn(t, w.do(t, args...)); got != want {
					t.Errorf("%q: %s, want %s", args, got, want)
				}
			}
			said("OK", "FILA.SIGNAL", "ADD", "provider:x", "refused")
			said("OK", "FILA.SIGNAL", "ADD", "tenant-1", "pages", "12.5")
			said("OK", "FILA.SIGNAL", "ADD", "tenant-1", "pages", "3", "AT", "1700000000000")
			said("INVALID", "FILA.SIGNAL", "ADD", "tenant-1", "Pages")
			said("INVALID", "FILA.SIGNAL", "ADD", "tenant-1", "pages", "1.1e15")
			said("INVALID", "FILA.SIGNAL", "ADD", "tenant-1", "pages", "1", "AT", "99999999999999")
			shows("tenant-1/pages=15.5", "FILA.SIGNAL", "GET", "tenant-1")
			kit.Kill(t, b)
			kit.Start(t, b)
			shows("tenant-1/pages=15.5", "FILA.SIGNAL", "GET", "tenant-1", "pages")
			shows("", "FILA.SIGNAL", "GET", "tenant-2")
			page, ok := w.do(t, "FILA.SIGNAL", "LIST", "MATCH", "provider:*", "COUNT", "100").([]any)
			if !ok || len(page) != 2 || fmt.Sprint(page[0]) != "0" || signalsIn(t, page[1]) != "provider:x/refused=1" {
				t.Errorf("a page is %v", page)
			}

			said("OK", "FILA.QUEUE", "CREATE", "jobs", "SIGNALS", "ON")
			w.do(t, "FILA.SCRIPT", "LOAD", "jobs", "ON_ENQUEUE",
				`function on_enqueue(msg) return { fairness_key = fila.signal("provider:x", "refused", "all") > 1 and "down" or "up" } end`)
			w.do(t, "FILA.ENQUEUE", "jobs", "a", "THROTTLE", "provider:x")
			said("OK", "FILA.SIGNAL", "ADD", "provider:x", "refused")
			w.do(t, "FILA.ENQUEUE", "jobs", "b")
			shows("up/enqueued=1", "FILA.SIGNAL", "GET", "up")
			shows("down/enqueued=1", "FILA.SIGNAL", "GET", "down")
			shows("provider:x/enqueued=1 provider:x/refused=2", "FILA.SIGNAL", "GET", "provider:x")
			said("OK", "FILA.QUEUE", "ALTER", "jobs", "SIGNALS", "OFF")
			w.do(t, "FILA.ENQUEUE", "jobs", "c")
			shows("down/enqueued=1", "FILA.SIGNAL", "GET", "down")

			said("1", "FILA.SIGNAL", "DEL", "provider:x", "enqueued")
			said("1", "FILA.SIGNAL", "DEL", "provider:x")
			said("0", "FILA.SIGNAL", "DEL", "provider:x")
			for _, subject := range []string{"tenant-1", "up", "down"} {
				said("1", "FILA.SIGNAL", "DEL", subject)
			}
			w.do(t, "FILA.QUEUE", "DELETE", "jobs", "FORCE")
			w.do(t, "FILA.QUEUE", "DELETE", "jobs.dlq", "FORCE")
		})
	}
}
