package integration_test

import (
	"crypto/sha1" //nolint:gosec // the version of a script, not a secret
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// shown returns a map, or the only map of an array, as printed by redis-cli.
func shown(t *testing.T, addr string, args ...string) map[string]any {
	t.Helper()
	out, _ := cli(t, addr, "", append([]string{"-3", "--json"}, args...)...)
	var list []map[string]any
	if json.Unmarshal([]byte(out), &list) == nil && len(list) == 1 {
		return list[0]
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("%q: %s", args, out)
	}
	return m
}

// wantShown compares the fields in want.
func wantShown(t *testing.T, got map[string]any, want map[string]any) {
	t.Helper()
	for name, w := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(w) {
			t.Errorf("%s is %v, want %v, in %v", name, got[name], w, got)
		}
	}
}

// TestScriptsAreLoadedFromAFileAndOutliveTheBroker: a policy loaded at run time applies from the
// next message, and persists however the process ends.
func TestScriptsAreLoadedFromAFileAndOutliveTheBroker(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "tenants.lua"))
	if err != nil {
		t.Fatal(err)
	}
	source := string(text)
	sum := sha1.Sum(text) //nolint:gosec // see above
	version := hex.EncodeToString(sum[:])
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t)
			said := func(want string, args ...string) {
				t.Helper()
				if out, code := cli(t, b.Addr(), "", append([]string{"-e"}, args...)...); out != want || code != 0 {
					t.Errorf("%q: %s, exit code %d, want %s", args, out, code, want)
				}
			}
			enqueue := func(weight int, lane string) {
				t.Helper()
				id, _ := cli(t, b.Addr(), "", "FILA.ENQUEUE", "q", "x", "HEADER", "tenant", "acme", "KEY", "mine")
				wantShown(t, shown(t, b.Addr(), "FILA.KEY", "GET", "q", "acme"), map[string]any{"weight": weight})
				wantShown(t, shown(t, b.Addr(), "FILA.EXPLAIN", "q", id), map[string]any{"key": "acme", "throttles": "[" + lane + "]"})
			}
			said("OK", "FILA.QUEUE", "CREATE", "q")
			if out, code := cli(t, b.Addr(), source, "-e", "-x", "FILA.SCRIPT", "LOAD", "q", "ON_ENQUEUE"); out != version || code != 0 {
				t.Fatalf("loaded as %s, exit code %d", out, code)
			}
			enqueue(1, "lane:normal")
			said("OK", "FILA.CONFIG", "SET", "weight:acme", "5", "lane", "slow")
			enqueue(5, "lane:slow")
			broken := strings.Replace(source, "return {", "return {{", 1)
			if out, code := cli(t, b.Addr(), broken, "-e", "-x", "FILA.SCRIPT", "LOAD", "q", "ON_ENQUEUE"); !strings.HasPrefix(out, "LUA ") ||
				!strings.Contains(out, "on_enqueue:10: ") || code != 1 {
				t.Errorf("a script that does not compile: %s, exit code %d", out, code)
			}
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			kit.Start(t, b)
			said(strings.TrimRight(source, "\n"), "FILA.SCRIPT", "GET", "q", "ON_ENQUEUE")
			wantShown(t, shown(t, b.Addr(), "FILA.SCRIPT", "LIST"), map[string]any{"queue": "q", "hook": "on_enqueue", "version": version, "bytes": len(source)})
			said("slow", "FILA.CONFIG", "GET", "lane")
			enqueue(5, "lane:slow")
			said("1", "FILA.CONFIG", "DEL", "lane")
			enqueue(5, "lane:normal")
			said("1", "FILA.SCRIPT", "DEL", "q", "ON_ENQUEUE")
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			kit.Start(t, b)
			said("", "FILA.SCRIPT", "LIST")
			said("", "FILA.CONFIG", "GET", "lane")
		})
	}
}

// TestTheBreakerOpensAndClosesAgain: a failing script is disabled after at most three errors;
// clients see no error, and messages get default decisions. Once it stops failing, it is enabled
// again after a while.
func TestTheBreakerOpensAndClosesAgain(t *testing.T) {
	t.Parallel()
	// failing is a broker with a script that fails, and messages to which that has happened.
	failing := func(cooldown string, messages int) (b *harness.Broker, c *redis.Client, stats func() map[string]any) {
		b = kit.Serve(t, "--lua.breaker_cooldown_ms", cooldown)
		c = kit.Connect(t, b.Addr(), 3)
		kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
		kit.Do(t, c, "FILA.SCRIPT", "LOAD", "q", "ON_ENQUEUE", "function on_enqueue(msg)\n  return { fairness_key = msg.headers[fila.get('by'):lower()] }\nend")
		for range messages {
			kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "KEY", "mine", "WEIGHT", 7, "THROTTLE", "slow")
		}
		return b, c, func() map[string]any { return shown(t, b.Addr(), "FILA.SCRIPT", "STATS", "q") }
	}
	b, c, stats := failing("3600000", 6)
	got := stats()
	wantShown(t, got, map[string]any{"state": "open", "calls": 3, "errors": 3, "skipped": 3, "row": 3, "opened": 1, "last_line": 2})
	if text := fmt.Sprint(got["last_error"]); !strings.HasPrefix(text, "on_enqueue:2: ") {
		t.Errorf("the last error is %s", text)
	}
	wantShown(t, shown(t, b.Addr(), "FILA.KEY", "GET", "q", "default"), map[string]any{"depth": 6, "weight": 1})
	if out, code := cli(t, b.Addr(), "", "-e", "FILA.SCRIPT", "TEST", "q", "ON_ENQUEUE"); !strings.HasPrefix(out, "LUA on_enqueue:2: ") || code != 1 {
		t.Errorf("a dry run: %s, exit code %d", out, code)
	}

	kit.Do(t, c, "FILA.CONFIG", "SET", "by", "Tenant")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "HEADER", "tenant", "acme")
	wantShown(t, stats(), map[string]any{"state": "open", "calls": 3, "skipped": 4})
	wantShown(t, shown(t, b.Addr(), "FILA.KEY", "GET", "q", "default"), map[string]any{"depth": 7})

	b, c, stats = failing("100", 3)
	kit.Do(t, c, "FILA.CONFIG", "SET", "by", "Tenant")
	testkit.Eventually(t, "the breaker lets a call through", func() bool { return stats()["state"] == "trial" })
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "HEADER", "tenant", "acme")
	wantShown(t, stats(), map[string]any{"state": "closed", "calls": 4, "errors": 3, "row": 0, "opened": 1, "trial_at": nil})
	wantShown(t, shown(t, b.Addr(), "FILA.KEY", "GET", "q", "acme"), map[string]any{"depth": 1})
	wantShown(t, shown(t, b.Addr(), "FILA.KEY", "GET", "q", "default"), map[string]any{"depth": 3})
}

// TestDelayedMessagesComeAtTheirTime: not early, even across a restart.
// Within a key, higher priorities are delivered first.
func TestDelayedMessagesComeAtTheirTime(t *testing.T) {
	t.Parallel()
	how := ends()
	how["go on"] = nil
	for name, end := range how {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t)
			c := kit.Connect(t, b.Addr(), 3)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
			kit.Do(t, c, "FILA.ENQUEUE", "q", "usual")
			kit.Do(t, c, "FILA.ENQUEUE", "q", "low", "PRIORITY", 0)
			kit.Do(t, c, "FILA.ENQUEUE", "q", "high", "PRIORITY", 9)
			kit.Do(t, c, "FILA.ENQUEUE", "q", "past", "AT", 1)
			begun := time.Now()
			at := time.UnixMilli(begun.UnixMilli() + 1500)
			kit.Do(t, c, "FILA.ENQUEUE", "q", "at", "AT", at.UnixMilli(), "PRIORITY", 9)
			kit.Do(t, c, "FILA.ENQUEUE", "q", "delay", "DELAY", 1000)
			kit.Do(t, c, "FILA.ENQUEUE", "q", "far", "DELAY", 3_600_000)
			restarted(t, b, end)
			due := map[string]time.Time{"delay": begun.Add(time.Second), "at": at}
			var others []string
			for range 4 + len(due) {
				d := one(t, c, "q")
				if at, delayed := due[d.payload]; !delayed {
					others = append(others, d.payload)
				} else if early := time.Until(at); early > 0 {
					t.Errorf("%s came %s before its time", d.payload, early)
				}
			}
			if want := []string{"high", "usual", "past", "low"}; !slices.Equal(others, want) {
				t.Errorf("leased %v, want %v", others, want)
			}
			kit.WantStats(t, c, "q", map[string]int64{"ready": 0, "delayed": 1, "leased": 6})
		})
	}
}

// restarted ends the broker, if end is set, and starts it again.
func restarted(t *testing.T, b *harness.Broker, end func(b *harness.Broker) error) {
	t.Helper()
	if end == nil {
		return
	}
	if err := end(b); err != nil {
		t.Fatal(err)
	}
	kit.Start(t, b)
}
