package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

const (
	goodScript  = "function on_enqueue(msg)\n  return { fairness_key = msg.headers.tenant }\nend\n"
	wrongScript = "function on_enqueue(msg)\n  local tier = msg.headers.tier.name\n  return { fairness_key = tier }\nend\n"
	fixedScript = "function on_enqueue(msg)\n  return { fairness_key = msg.headers.tenant, weight = 2 }\nend\n"
)

// TestABadDay goes through a day on which much goes wrong, from the browser alone.
func TestABadDay(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	browser := browse(t)
	x := open(t, browser, b.url, "#/")
	x.login("admin", "nimda")
	x.wait("There is no queue yet.")
	x.shoot("nothing")

	x.click("button", "New queue")
	x.fill("textbox", "Name", "orders")
	x.wait("FILA.QUEUE CREATE orders")
	x.click("button", "New queue")
	x.wait("The queue is made.")
	x.click("link", "orders")

	theFlood(x, b)
	theThrottle(x, b)
	theScript(x, b)
	theDeadLetters(x, b)

	// A colleague only looks: all of it is there, and nothing can be done.
	y := open(t, browser, b.url, "#/")
	y.login("viewer", "reweiv")
	for _, hash := range []string{"#/", "#/queues/orders", "#/queues/orders/scripts", "#/queues/orders.dlq/dead", "#/throttles", "#/events"} {
		y.visit(hash)
		y.drawn()
		if _, enabled := y.disabled(); len(enabled) > 0 {
			t.Errorf("%s: a viewer may %q", hash, enabled)
		}
	}
	y.visit("#/queues/orders")
	y.wait("flood")
}

// share returns the share of a key and its fair share as the page shows them.
func (x *tab) share(key string) (share, fair string) {
	x.t.Helper()
	r, err := x.Eval(`(key) => {
		const row = [...document.querySelectorAll("tbody tr")].find((r) => r.querySelector("th")?.textContent === key);
		return row?.querySelector("svg[role=img]")?.getAttribute("aria-label") ?? "";
	}`, key)
	if err != nil {
		x.t.Fatal(err)
	}
	share, fair, _ = strings.Cut(r.Value.Str(), ", ")
	return strings.TrimPrefix(share, "share "), strings.TrimPrefix(fair, "fair share ")
}

func percent(part float64) string {
	p := part * 100
	if p > 0 && p < 10 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// theFlood: a tenant floods the queue. The shares show that the others get theirs all the same, and
// follow a change of weight.
func theFlood(x *tab, b *broker) {
	x.t.Helper()
	b.enqueue(8000, "orders", `{"order": 1}`, "KEY", "flood", "THROTTLE", "tenant:flood")
	b.enqueue(6000, "orders", `{"order": 2}`, "KEY", "acme") // more than globex: the rows do not change places
	b.enqueue(4000, "orders", `{"order": 3}`, "KEY", "globex")
	b.work("worker", "rekrow", 12*time.Millisecond, "orders")
	x.wait("flood")
	x.until("the flood is the deepest", `() => document.querySelector(".card .table tbody th")?.textContent === "flood"`)
	testkit.Eventually(x.t, "the flood has a third of the deliveries", func() bool {
		share, fair := x.share("flood")
		return fair == "33 %" && (share == "32 %" || share == "33 %" || share == "34 %")
	})

	x.click("link", "acme")
	x.wait("Key acme")
	x.click("button", "Weight")
	x.fill("spinbutton", "Weight", "2")
	x.wait("FILA.KEY SET orders acme WEIGHT 2")
	x.click("button", "Set weight")
	x.wait("The weight of acme is set.")
	x.click("link", "Keys")
	x.wait("flood")
	testkit.Eventually(x.t, "the shares of the page are those of FILA.KEYS", func() bool {
		k, _ := b.do("FILA.KEY", "GET", "orders", "acme").(client.Map)
		_, fair := x.share("acme")
		return k.Int("weight") == 2 && fair == "50 %" && percent(k.Float("fair_share")) == fair
	})
	x.shoot("badday-flood")
}

// theThrottle: the tenant that floods is throttled, and the page says why it waits.
func theThrottle(x *tab, b *broker) {
	x.t.Helper()
	x.visit("#/throttles")
	x.wait("There is no throttle yet.")
	x.click("button", "New throttle")
	x.fill("textbox", "Name", "tenant:flood")
	x.fill("textbox", "Messages per second", "1")
	x.wait("FILA.THROTTLE SET tenant:flood RATE 1")
	x.click("button", "Set")
	x.wait("The throttle is set.")
	x.wait("tenant:flood")
	x.visit("#/queues/orders/keys/flood")
	x.wait("throttled")
	x.wait(`throttle "tenant:flood"`)
	testkit.EventuallyEqual(x.t, "what the broker says", "throttled", func() string { // or a token waits for the worker
		return b.do("FILA.EXPLAIN", "orders", "KEY", "flood").(client.Map).Text("state")
	})
	x.shoot("badday-throttled")
}

// theScript: one is tried and loaded, the next fails in production, is corrected, and then the
// first is taken back.
func theScript(x *tab, b *broker) {
	x.t.Helper()
	b.do("FILA.QUEUE", "CREATE", "mails", "BREAKERERRORS", "5")
	x.visit("#/queues/mails/scripts")
	x.wait("not loaded")
	edit := func(source string) { // its name says where an error is, and changes
		x.until("the editor has the focus", `() => { const e = document.querySelector(".code textarea"); e.focus(); e.select(); return document.activeElement === e; }`)
		if err := x.InsertText(source); err != nil {
			x.t.Fatal(err)
		}
	}
	load := func() {
		x.click("button", "Load")
		x.wait("FILA.SCRIPT LOAD mails ON_ENQUEUE")
		x.click("button", "Load")
		x.wait("Loaded as")
		x.until("the dialog is closed", `() => !document.querySelector("dialog[open]")`)
	}
	edit(goodScript)
	x.fill("textbox", "Headers", "tenant: acme")
	x.click("button", "Try it")
	x.wait("It decides:")
	x.until("it decides the key", `() => [...document.querySelectorAll(".trial .facts > div")].some((d) => d.textContent === "fairness keyacme")`)
	load()
	x.gone("not loaded")

	edit(wrongScript)
	x.wait("changed")
	x.click("button", "Try it")
	x.wait("It fails.")
	x.until("the line of the error is marked", `() => document.querySelector(".gutter .bad")?.textContent === "2"`)
	load() // in spite of that
	b.enqueue(12, "mails", "Dear Ms Doe", "HEADER", "tenant", "acme")
	x.wait("Last error, line 2")
	x.wait("breaker open")
	x.shoot("badday-script")

	edit(fixedScript)
	x.click("button", "Try it")
	x.wait("It decides:")
	load()
	x.wait("breaker closed")
	b.enqueue(1, "mails", "Dear Ms Doe", "HEADER", "tenant", "acme")

	x.click("button", "Roll back to "+versionOf(b, 2)) // the oldest
	x.wait("FILA.SCRIPT ROLLBACK mails ON_ENQUEUE")
	version := x.command()
	x.click("button", "Roll back")
	x.wait("Rolled back to")
	x.until("the source is that of the version", `(source) => document.querySelector(".code textarea").value === source`, goodScript)
	list, _ := b.do("FILA.SCRIPT", "LIST", "mails").([]any)
	if got := client.Maps(list)[0].Text("version"); !strings.HasSuffix(version, got) {
		x.t.Errorf("%s has loaded %s", version, got)
	}
}

// versionOf returns the beginning of a version of the history of a script, the newest is 0.
func versionOf(b *broker, n int) string {
	b.t.Helper()
	all, _ := b.do("FILA.SCRIPT", "HISTORY", "mails", "ON_ENQUEUE").([]any)
	return client.Maps(all)[n].Text("version")[:12]
}

// command returns the command line of the dialog, empty before there is one.
func (x *tab) command() string {
	x.t.Helper()
	r, err := x.Eval(`() => document.querySelector("dialog .command pre")?.textContent ?? ""`)
	if err != nil {
		x.t.Fatal(err)
	}
	return r.Value.Str()
}

// theDeadLetters: two kinds of errors; one is redriven at a rate, stopped and resumed, and the
// other is not touched.
func theDeadLetters(x *tab, b *broker) {
	x.t.Helper()
	b.do("FILA.QUEUE", "CREATE", "payments")
	b.die(30, "payments", func(i int) string {
		if i < 20 {
			return fmt.Sprintf("dial tcp 10.0.0.%d:5432: connection refused", i)
		}
		return fmt.Sprintf("order %d: card was declined", i)
	})
	b.do("FILA.QUEUE", "PAUSE", "payments", "OUT") // what comes back is counted
	group := func(of string) int64 {
		page, _ := b.do("FILA.BROWSE", "payments.dlq", "COUNT", "1000", "GROUP", "ERROR").([]any)
		for _, g := range client.Maps(page[1]) {
			if g.Text("error") == of {
				return g.Int("count")
			}
		}
		return 0
	}
	const refused, declined = "dial tcp #:#: connection refused", "order #: card was declined"
	x.visit("#/queues/payments.dlq/dead")
	x.wait(refused)
	x.wait(declined)
	x.click("link", refused)
	x.wait("20 messages")
	x.shoot("badday-dead")
	x.click("button", "Redrive "+refused)
	x.fill("spinbutton", "Messages per second", "1") // so that it does not end before it is stopped
	x.wait(`FILA.REDRIVE payments.dlq RATE 1 CAUSE "dial tcp #:#: connection refused"`)
	x.click("button", "Redrive")
	x.wait("Redriving")
	x.until("the progress moves", `() => +/(\d+) messages? moved/.exec(document.body.innerText)?.[1] >= 2`)
	x.click("button", "Stop")
	x.wait("FILA.REDRIVE payments.dlq STOP")
	x.click("button", "Stop")
	x.wait("The redrive is stopped.")
	x.wait("Last redrive")
	left := group(refused)
	if left == 0 || left == 20 {
		x.t.Errorf("%d of 20 are left", left)
	}
	x.shoot("badday-redrive")
	x.click("button", "Resume")
	x.wait(`FILA.REDRIVE payments.dlq RATE 1 CAUSE "dial tcp #:#: connection refused"`)
	x.click("button", "Resume")
	testkit.Eventually(x.t, "the group is moved", func() bool { return group(refused) == 0 })
	x.gone(refused + "\t")
	if n := group(declined); n != 10 {
		x.t.Errorf("%d of the other group are left, want 10", n)
	}
	if n := b.do("FILA.STATS", "payments").(client.Map).Int("ready"); n != 20 {
		x.t.Errorf("%d are back, want 20", n)
	}
}
