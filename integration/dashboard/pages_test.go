package dashboard

import (
	"fmt"
	"maps"
	"regexp"
	"testing"
	"time"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// shop fills a broker with what a shop would have: tenants, a flood, failures, throttles.
func shop(b *broker) {
	b.t.Helper()
	b.do("FILA.QUEUE", "CREATE", "orders", "MAXATTEMPTS", "3")
	b.do("FILA.QUEUE", "CREATE", "mails")
	b.do("FILA.QUEUE", "CREATE", "reports", "NODLQ")
	b.do("FILA.QUEUE", "CREATE", "thumbnails")
	b.do("FILA.SCRIPT", "LOAD", "mails", "ON_ENQUEUE", "function on_enqueue(msg)\n  return { fairness_key = msg.headers.tenant, throttle_keys = { \"tenant:\" .. msg.headers.tenant } }\nend\n")
	b.do("FILA.SCRIPT", "LOAD", "mails", "ON_FAILURE", "function on_failure(msg)\n  if msg.error:find('^550') then return { action = 'dlq' } end\n  return { delay_ms = fila.backoff(msg.attempts, 1000, 60000) }\nend\n")
	b.do("FILA.THROTTLE", "SET", "tenant:globex", "RATE", "2", "BURST", "4")
	b.do("FILA.THROTTLE", "SET", "provider:mail", "CONCURRENCY", "8", "RATE", "50")
	b.do("FILA.THROTTLE", "SET", "provider:llm", "CONCURRENCY", "20", "ADAPTIVE", "MIN", "2")
	b.do("FILA.BUDGET", "SET", "acme", "LOW", "200")
	b.do("FILA.BUDGET", "CREDIT", "acme", "1000", "ID", "invoice-17", "NOTE", "invoice 17")
	b.do("FILA.BUDGET", "CHARGE", "acme", "150", "NOTE", "search")
	b.do("FILA.BUDGET", "SET", "daily", "REFILL", "1000", "EVERY", "@daily", "TZ", "Europe/Berlin", "MAX", "3000")
	b.do("FILA.BUDGET", "SET", "empty")
	b.do("FILA.CRON", "SET", "morning", "reports", "30 6 * * mon-fri", "daily", "TZ", "Europe/Berlin", "KEY", "acme")
	b.do("FILA.CRON", "SET", "sync", "reports", "@every 5m", "poll", "CATCHUP", "NONE")
	b.do("FILA.SIGNAL", "ADD", "provider:mail", "refused", "4")
	b.do("FILA.SIGNAL", "ADD", "acme", "pages", "12.5")
	b.do("FILA.CONFIG", "SET", "weight:acme", "5", "maintenance", "off")
	b.do("FILA.QUEUE", "CREATE", "changes", "ORDERED", "ON", "RESULTTTL", "60000")
	b.do("FILA.TOPIC", "BIND", "order.placed", "reports", "HEADER", "kind", "report")
	b.do("FILA.TOPIC", "BIND", "order.placed", "changes", "HEADER", "kind", "goods", "HEADER", "country", "d?")
	b.do("FILA.TOPIC", "BIND", "customer.changed", "changes")
	b.do("FILA.PUBLISH", "order.placed", `{"order": 17}`, "KEY", "acme", "HEADER", "kind", "goods", "HEADER", "country", "de")
	b.die(14, "orders", func(i int) string {
		if i%3 == 0 {
			return fmt.Sprintf("order %d: card was declined", 4711+i)
		}
		return fmt.Sprintf("dial tcp 10.0.0.%d:5432: connection refused", i)
	}, "KEY", "initech", "HEADER", "tenant", "initech")
	b.die(5, "mails", func(int) string { return "550 no such user" }, "HEADER", "tenant", "acme")
	b.enqueue(4000, "orders", `{"order": 1, "lines": [{"sku": "A-17", "count": 2}]}`, "KEY", "acme", "WEIGHT", "3", "HEADER", "tenant", "acme", "HEADER", "trace", "7f3a")
	b.enqueue(800, "orders", `{"order": 2}`, "KEY", "globex", "THROTTLE", "tenant:globex")
	b.enqueue(300, "orders", `{"order": 3}`, "KEY", "initech")
	b.enqueue(60, "orders", `{"order": 4}`, "KEY", "umbrella")
	b.do("FILA.KEY", "PAUSE", "orders", "umbrella")
	b.enqueue(25, "orders", `{"order": 5}`, "KEY", "hooli", "BUDGET", "empty")
	b.enqueue(40, "orders", "later", "KEY", "initech", "DELAY", "3600000")
	b.enqueue(120, "mails", "Dear Ms Doe", "HEADER", "tenant", "acme")
	b.do("FILA.GROUP", "OPEN", "import-7", "reports", "summary", "HEADER", "kind", "report")
	b.do("FILA.GROUP", "OPEN", "nightly", "reports", "all done", "WHEN", "DONE", "EXPIRE", "86400000")
	b.enqueue(42, "thumbnails", "resize 17.png", "GROUP", "import-7")
	b.do("FILA.GROUP", "SEAL", "import-7")
	b.ack(12, "thumbnails")
	b.do("FILA.QUEUE", "PAUSE", "reports", "OUT")
}

// everyPage are the addresses of all pages, once a broker is a shop.
func everyPage(b *broker) map[string]string {
	b.t.Helper()
	return map[string]string{
		"overview": "#/", "keys": "#/queues/orders", "key": "#/queues/orders/keys/globex", "messages": "#/queues/orders/messages", "consumers": "#/queues/mails/consumers",
		"message": "#/queues/orders.dlq/messages/" + firstID(b, "orders.dlq"), "dead": "#/queues/orders.dlq/dead",
		"scripts": "#/queues/mails/scripts", "settings": "#/queues/orders/settings",
		"topics": "#/topics", "topic": "#/topics/order.placed", "subscriptions": "#/queues/changes/topics", "groups": "#/groups", "group": "#/groups/import-7",
		"throttles": "#/throttles", "budgets": "#/budgets", "budget": "#/budgets/acme", "signals": "#/signals", "schedules": "#/crons", "events": "#/events?kind=all",
		"clients": "#/clients", "slowlog": "#/slowlog", "latency": "#/latency", "config": "#/config", "server": "#/config/server", "users": "#/users", "audit": "#/audit",
	}
}

// firstID returns the id of a message of a queue.
func firstID(b *broker, queue string) string {
	b.t.Helper()
	page, _ := b.do("FILA.BROWSE", queue, "COUNT", "1").([]any)
	for _, m := range client.Maps(page[1]) {
		return m.Text("id")
	}
	b.t.Fatalf("%s is empty", queue)
	return ""
}

// stamp is a time as programs write it.
var stamp = regexp.MustCompile(`\b1[0-9]{12}\b|\d{4}-\d\d-\d\dT\d\d:[\d:.]+Z?`)

// plain fails if a page shows a time as programs write it, or says a sentence twice outside of its tables.
func (x *tab) plain(where string) {
	x.t.Helper()
	if s := stamp.FindString(x.text()); s != "" {
		x.t.Errorf("%s: %q is no time that people read", where, s)
	}
	r, err := x.Eval(`() => {
		const seen = new Set(), twice = [];
		for (const e of document.querySelectorAll("main *")) {
			const inner = [...e.children].some((c) => getComputedStyle(c).display !== "inline");
			if (inner || getComputedStyle(e).display === "inline" || !e.checkVisibility() || e.closest("table, option, pre, dl, .hidden")) {
				continue;
			}
			for (const s of (e.innerText ?? "").split(/(?<=[.:;])\s+/).map((s) => s.trim())) {
				if (s.split(" ").length > 3) {
					seen.has(s) && twice.push(s);
					seen.add(s);
				}
			}
		}
		return twice;
	}`)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, s := range r.Value.Arr() {
		x.t.Errorf("%s says twice: %q", where, s.Str())
	}
}

func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{}, "--slowlog.slower_than_us", "300", "--latency.threshold_ms", "1")
	shop(b)
	b.work("", "", 15*time.Millisecond, "orders", "mails")
	source := axe(t)
	x := open(t, browse(t), b.url, "#/")
	pages, schemes, actions := everyPage(b), []string{"light", "dark"}, []string{"Enqueue", "Purge"}
	if testing.Short() { // all pages are opened, and a few are looked at closely
		schemes, actions = schemes[:1], actions[:1]
		for _, hash := range pages {
			x.visit(hash)
			x.drawn()
			x.wantQuiet()
		}
		maps.DeleteFunc(pages, func(name, _ string) bool { return name != "overview" && name != "messages" })
	}
	for name, hash := range pages {
		for _, scheme := range schemes {
			x.theme(scheme)
			x.size(1280, 900)
			x.visit(hash)
			x.drawn()
			x.accessible(source, name+" "+scheme)
			x.shoot(name + "-" + scheme)
			x.plain(name)
			x.wantQuiet()
		}
		x.size(1200, 800)
		x.fits(name)
		x.size(320, 800)
		x.drawn()
		x.narrow(name)
		x.shoot(name + "-320")
	}

	// The dialogs of actions: one with fields, and one that wants a name typed.
	for _, action := range actions {
		x.size(320, 800)
		x.visit("#/queues/orders")
		x.drawn()
		x.click("button", action)
		x.wait("This sends:")
		for _, scheme := range schemes {
			x.theme(scheme)
			x.accessible(source, action+" "+scheme)
			x.narrow(action)
			x.shoot("dialog-" + action + "-" + scheme)
		}
		x.click("button", "Cancel")
	}

	// An action is done.
	x.size(1280, 900)
	x.visit("#/queues/thumbnails")
	x.drawn()
	x.click("button", "Pause")
	x.wait("FILA.QUEUE PAUSE thumbnails")
	x.click("button", "Pause")
	x.wait("paused")
	if n := b.do("FILA.QUEUE", "INFO", "thumbnails").(client.Map).Int("paused_out"); n != 1 {
		t.Errorf("paused_out is %d", n)
	}
}

// A link with an invalid id, such as one that was copied in part, leads to a page that says so.
func TestTheMessagePageSaysThatAnIDIsInvalid(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	x := open(t, browse(t), b.url, "#/queues/orders/messages/01982a6e-7d0b")
	x.wait(`not a message id or receipt: "01982a6e-7d0b"`)
}
