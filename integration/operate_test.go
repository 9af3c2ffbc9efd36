package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// What operators do with messages and scripts, through a client, also after the broker has
// ended.

// pages walks through a queue with FILA.BROWSE and returns what its pages hold, as maps.
func pages(t *testing.T, c *redis.Client, queue string, options ...any) (found []map[string]any, asked int) {
	t.Helper()
	cursor := any("0")
	for {
		reply, _ := kit.Do(t, c, append([]any{"FILA.BROWSE", queue, "CURSOR", cursor}, options...)...).([]any)
		if len(reply) != 2 {
			t.Fatalf("a page of %d elements", len(reply))
		}
		list, _ := reply[1].([]any)
		for _, one := range list {
			found = append(found, kit.Mapped(t, one))
		}
		asked++
		if cursor = reply[0]; cursor == "0" {
			return found, asked
		}
	}
}

// failing is a dead-letter queue with messages of three errors.
func failing(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "orders")
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "mails", "DLQ", "orders.dlq")
	for i := range n {
		queue, text := "orders", fmt.Sprintf("timeout after %d ms", 1000+i)
		switch i % 10 {
		case 3:
			text = fmt.Sprintf("no customer 'c%d'", i)
		case 7:
			queue, text = "mails", "disk [full]"
		}
		kit.Do(t, c, "FILA.ENQUEUE", queue, fmt.Sprintf("order %d", i), "KEY", fmt.Sprintf("k%d", i%3), "HEADER", "customer", fmt.Sprintf("c%d", i))
		ds := lease(t, c, queue)
		kit.Do(t, c, "FILA.NACK", queue, ds[0].receipt, "DEAD", "ERROR", text)
	}
}

func TestMessagesAreFoundAndOneGroupOfErrorsGoesBack(t *testing.T) {
	t.Parallel()
	const n = 200
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t)
			c := kit.Connect(t, b.Addr(), 3)
			failing(t, c, n)
			restarted(t, b, end)
			c = kit.Connect(t, b.Addr(), 2)
			for want, options := range map[string][]any{
				"order 41":  {"HEADER", "customer", "c41"},
				"order 142": {"PAYLOAD", "r 142"},
				"order 55":  {"ERROR", "*1055*"},
			} {
				found, asked := pages(t, c, "orders.dlq", append(options, "COUNT", 20)...)
				if len(found) != 1 || found[0]["payload"] != want || asked < n/20 {
					t.Errorf("%v: found %v in %d pages", options, found, asked)
				}
			}
			if found, _ := pages(t, c, "orders.dlq", "SINCE", time.Now().Add(time.Hour).UnixMilli()); len(found) != 0 {
				t.Errorf("%d messages have died in the future", len(found))
			}
			refused(t, c, "INVALID", "FILA.BROWSE", "orders.dlq", "ERROR", "[x")

			groups, _ := pages(t, c, "orders.dlq", "COUNT", n, "GROUP", "ERROR")
			var texts []string
			for _, g := range groups {
				texts = append(texts, fmt.Sprintf("%v %v", g["error"], g["count"]))
			}
			if want := []string{"timeout after # ms 160", `disk \[full] 20`, "no customer '' 20"}; !slices.Equal(texts, want) {
				t.Fatalf("the groups are %q, want %q", texts, want)
			}
			// One group at a rate, stopped, and begun again after another end of the broker.
			redrive := []any{"FILA.REDRIVE", "orders.dlq", "ERROR", groups[2]["error"], "RATE", 1}
			kit.Do(t, c, redrive...)
			moved := func() int64 {
				n, _ := kit.Mapped(t, kit.Do(t, c, "FILA.STATS", "orders.dlq"))["redrive_moved"].(int64)
				return n
			}
			testkit.Eventually(t, "two messages are redriven", func() bool { return moved() >= 2 })
			stopped, _ := kit.Do(t, c, "FILA.REDRIVE", "orders.dlq", "STOP").(int64)
			if stopped < 2 || stopped >= 20 {
				t.Errorf("stopped after %d messages", stopped)
			}
			restarted(t, b, end)
			c = kit.Connect(t, b.Addr(), 3)
			redrive[len(redrive)-1] = 1000
			if rest, _ := kit.Do(t, c, redrive...).(int64); rest+stopped != 20 {
				t.Errorf("%d were moved before and %d after, of 20", stopped, rest)
			}
			if ds := lease(t, c, "orders", "COUNT", 100); len(ds) != 20 {
				t.Errorf("%d messages are back", len(ds))
			}
			left, _ := pages(t, c, "orders.dlq", "COUNT", n, "GROUP", "ERROR")
			if len(left) != 2 || fmt.Sprint(left[0]["count"], left[1]["count"]) != "160 20" {
				t.Errorf("what is left: %v", left)
			}
			if got := kit.Do(t, c, "FILA.REDRIVE", "orders.dlq", "FROM", "mails"); fmt.Sprint(got) != "20" {
				t.Errorf("%v messages went back to mails", got)
			}
		})
	}
}

func TestAScriptIsRolledBackAfterARestartAndInABackup(t *testing.T) {
	t.Parallel()
	source := func(weight int) string {
		return fmt.Sprintf("function on_enqueue(msg) return { weight = %d } end", weight)
	}
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t)
			c := kit.Connect(t, b.Addr(), 3)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
			for weight := range 12 {
				kit.Do(t, c, "FILA.SCRIPT", "LOAD", "q", "ON_ENQUEUE", source(weight+1))
			}
			history := func(c *redis.Client) (sources []string, list []map[string]any) {
				t.Helper()
				reply, _ := kit.Do(t, c, "FILA.SCRIPT", "HISTORY", "q", "ON_ENQUEUE").([]any)
				for _, one := range reply {
					list = append(list, kit.Mapped(t, one))
					sources = append(sources, fmt.Sprint(list[len(list)-1]["source"]))
				}
				return sources, list
			}
			restarted(t, b, end)
			anna := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 3, MaxRetries: -1, Username: "anna", Password: "secret", ReadTimeout: testkit.Patience()})
			t.Cleanup(func() { anna.Close() })
			c = kit.Connect(t, b.Addr(), 3)
			sources, list := history(c)
			if len(sources) != 10 || sources[0] != source(12) || sources[9] != source(3) || list[0]["user"] != "default" || list[0]["current"] != int64(1) {
				t.Fatalf("the history is %v", list)
			}
			kit.Do(t, c, "ACL", "SETUSER", "anna", "on", ">secret", "~*", "+@all")
			if err := anna.Do(t.Context(), "FILA.SCRIPT", "ROLLBACK", "q", "ON_ENQUEUE", list[5]["version"]).Err(); err != nil {
				t.Fatal(err)
			}
			refused(t, c, "INVALID", "FILA.SCRIPT", "ROLLBACK", "q", "ON_ENQUEUE", strings.Repeat("0", 40))
			check := func(c *redis.Client) {
				t.Helper()
				sources, list := history(c)
				if len(sources) != 10 || sources[0] != source(7) || sources[1] != source(12) || list[0]["user"] != "anna" {
					t.Errorf("the history is %v", list)
				}
				kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "KEY", "k")
				if key := kit.Mapped(t, kit.Do(t, c, "FILA.KEY", "GET", "q", "k")); key["weight"] != int64(7) {
					t.Errorf("the weight is %v", key["weight"])
				}
			}
			check(c)
			path := fmt.Sprint(kit.Mapped(t, kit.Do(t, c, "FILA.BACKUP", "scripts"))["path"])
			restarted(t, b, end)
			check(kit.Connect(t, b.Addr(), 3))
			copied := kit.Prepare(t)
			wantOutput(t, 0, "restored", "restore", path, copied.Data())
			kit.Start(t, copied)
			check(kit.Connect(t, copied.Addr(), 3))
			kit.Do(t, kit.Connect(t, b.Addr(), 3), "FILA.QUEUE", "DELETE", "q", "FORCE")
			kit.Do(t, kit.Connect(t, b.Addr(), 3), "FILA.QUEUE", "CREATE", "q")
			if sources, _ := history(kit.Connect(t, b.Addr(), 3)); len(sources) != 0 {
				t.Errorf("a new queue has the history %v", sources)
			}
		})
	}
}
