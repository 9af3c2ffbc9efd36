package dashboard

import (
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

var (
	manyKeys   = flag.Int("keys", 20_000, "fairness keys of TestManyQueuesAndKeysChangeNothingButTheNumberShown; 1000000 for figures")
	manyQueues = flag.Int("queues", 10_000, "its queues")
)

// traffic is what a page has asked for: different requests, as it repeats those for its figures while it is open, and bytes.
type traffic struct {
	requests map[string]bool
	bytes    float64
}

// ask visits a page in a tab of its own, waits for what it must say, and returns what that took.
func (b *broker) ask(x *tab, hash, says string) (traffic, time.Duration) {
	b.t.Helper()
	sum := traffic{requests: map[string]bool{}}
	wait := make(chan struct{})
	watched, stop := x.Page.WithCancel()
	go func() {
		defer close(wait)
		watched.EachEvent(func(e *proto.NetworkRequestWillBeSent) {
			sum.requests[e.Request.Method+" "+e.Request.URL+" "+e.Request.PostData] = true
		}, func(e *proto.NetworkDataReceived) { sum.bytes += float64(e.DataLength) })()
	}()
	if err := x.Navigate("about:blank"); err != nil {
		b.t.Fatal(err)
	}
	began := time.Now()
	if err := x.Navigate(b.url + hash); err != nil {
		b.t.Fatal(err)
	}
	x.wait(says)
	took := time.Since(began)
	stop()
	<-wait
	return sum, took
}

// many makes queues, and gives the first of them keys with a message each.
func (b *broker) many(queues, keys int) {
	b.t.Helper()
	some := func(n int, command func(i int) []string) {
		for i := 0; i < n; i += 500 {
			var batch [][]string
			for j := i; j < min(n, i+500); j++ {
				batch = append(batch, command(j))
			}
			if _, err := b.conn.Pipeline(b.t.Context(), batch...); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	some(queues, func(i int) []string { return []string{"FILA.QUEUE", "CREATE", fmt.Sprintf("queue-%05d", i), "NODLQ"} })
	some(keys, func(i int) []string {
		return []string{"FILA.ENQUEUE", "queue-00000", "x", "KEY", fmt.Sprintf("tenant-%07d", i)}
	})
}

// Ten thousand queues and very many keys: a page asks for as much as with ten of each, shows a
// page of them, and finds what is wrong with one at the end.
func TestManyQueuesAndKeysChangeNothingButTheNumberShown(t *testing.T) {
	testkit.AtLength(t)
	b := start(t, [2]string{})
	b.many(10, 10)
	x := open(t, browse(t), b.url, "#/")
	first, _ := b.ask(x, "#/", "queue-00009")
	keys, _ := b.ask(x, "#/queues/queue-00000", "tenant-0000009")

	b.many(*manyQueues, *manyKeys)
	last := fmt.Sprintf("queue-%05d", *manyQueues-7)
	b.do("FILA.QUEUE", "PAUSE", last)
	alone := b.waits(t)
	manyFirst, tookFirst := b.ask(x, "#/", "10,000 queues")
	manyTheKeys, tookKeys := b.ask(x, "#/queues/queue-00000", "fairness keys")
	x.rows("Fairness keys", 20)
	t.Logf("with %d queues and %d keys the first page is there after %s, the page of keys after %s", *manyQueues, *manyKeys, tookFirst, tookKeys)
	t.Logf("another client waits, alone: %s; with the page of keys open: %s", alone, b.waits(t))
	for name, pair := range map[string][2]traffic{"the queues": {first, manyFirst}, "the keys": {keys, manyTheKeys}} {
		if few, many := len(pair[0].requests), len(pair[1].requests); many > few+2 { // what only a list with further pages asks for
			t.Errorf("%s: %d requests with ten, %d with many: %q", name, few, many, slices.Sorted(maps.Keys(pair[1].requests)))
		}
		if pair[1].bytes > pair[0].bytes+400<<10 {
			t.Errorf("%s: %.0f bytes with ten, %.0f with many", name, pair[0].bytes, pair[1].bytes)
		}
	}

	x.visit("#/")
	x.drawn()
	x.rows("Queues", 100)
	x.shoot("many")
	x.click("button", "Next page")
	x.until("the next page is shown", `() => !document.querySelector(".pager button").disabled`)
	x.rows("Queues", 100)
	x.click("button", "First page")
	x.fill("searchbox", "Filter by name", "-0999")
	x.rows("Queues", 10)
	x.visit("#/?show=paused")
	x.find("link", last)
	x.wantQuiet()
}

// waits measures how long another client waits for its commands.
func (b *broker) waits(t *testing.T) string {
	t.Helper()
	c := b.dial("", "")
	var all []time.Duration
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		began := time.Now()
		if _, err := c.Do(t.Context(), "FILA.KEY", "GET", "queue-00000", "tenant-0000001"); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return fmt.Sprintf("p50 %s, p99 %s, max %s", all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}

// Search finds one of very many messages by its header, its payload and its error, says how far it
// is, and can be stopped and gone on with.
func TestASearchFindsOneOfManyAndCanBeStopped(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	many := max(*manyKeys, 60_000)
	b.enqueue(many/2, "orders", `{"order": 1}`, "KEY", "a")
	b.enqueue(1, "orders", `{"order": 4711, "needle": true}`, "KEY", "b", "HEADER", "customer", "needle-7")
	b.enqueue(many/2, "orders", `{"order": 2}`, "KEY", "c")
	b.die(1, "orders", func(int) string { return "the needle is broken" }, "KEY", "d", "PRIORITY", "9")
	x := open(t, browse(t), b.url, "#/queues/orders/messages")
	x.drawn()
	for field, typed := range map[string]string{"payload": "needle", "header": "header:customer"} {
		x.click("button", "Clear")
		x.fill("combobox", "Search messages", typed)
		x.click("button", "Search")
		x.until("the search by "+field+" has come to its end", `() => /looked at all .* found 1$/m.test(document.querySelector(".progress [role=status]").textContent)`)
	}
	x.visit("#/queues/orders.dlq/messages?error=*needle*")
	x.wait("the needle is broken")

	// What is common ends by itself when enough is found, and goes on when it is asked to.
	x.visit("#/queues/orders/messages")
	x.drawn()
	x.fill("combobox", "Search messages", "order")
	x.click("button", "Search")
	x.until("it stops by itself when it has found enough", `() => !/^Looking/.test(document.querySelector(".progress [role=status]").textContent)`)
	x.click("button", "Go on")
	x.until("it has found more", `() => +/found ([\d,]+)/.exec(document.querySelector(".progress [role=status]").textContent)[1].replace(",", "") > 200`)
	if n := b.do("FILA.STATS", "orders").(client.Map).Int("ready"); n != int64(many/2*2+1) {
		t.Errorf("%d messages are left: looking has changed something", n)
	}
}

// calls returns how often a command was called.
func (b *broker) calls(command string) int {
	b.t.Helper()
	m := regexp.MustCompile(`cmdstat_` + regexp.QuoteMeta(command) + `:calls=(\d+)`).FindStringSubmatch(client.Text(b.do("INFO", "commandstats")))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// link makes the way to the broker as slow as a distant one.
func (x *tab) link(latency time.Duration) {
	x.t.Helper()
	slow := proto.NetworkEmulateNetworkConditions{Latency: float64(latency.Milliseconds()), DownloadThroughput: -1, UploadThroughput: -1}
	if err := slow.Call(x); err != nil {
		x.t.Fatal(err)
	}
}

// A search that runs is stopped by its button: the broker reads no further page, the page says how
// far it came, and to go on goes on from there.
func TestASearchThatRunsIsStoppedAndGoesOn(t *testing.T) {
	testkit.AtLength(t)
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	many := max(*manyKeys, 120_000)
	b.enqueue(many, "orders", `{"order": 1}`, "KEY", "a")
	b.do("FILA.QUEUE", "CREATE", "probed", "NODLQ")
	x := open(t, browse(t), b.url, "#/queues/orders/messages")
	x.drawn()
	x.link(150 * time.Millisecond) // so that there is time to press a button, however fast the search is
	looked := func() int {
		r, err := x.Eval(`() => +/about ([\d,]+)|all ([\d,]+)/.exec(document.querySelector(".progress [role=status]").textContent).slice(1).join("").replaceAll(",", "")`)
		if err != nil {
			t.Fatal(err)
		}
		return r.Value.Int()
	}
	before := b.calls("fila.browse")
	x.fill("combobox", "Search messages", "nowhere")
	x.click("button", "Search")
	x.until("it is looking", `() => /^Looking: looked at about [1-9]/.test(document.querySelector(".progress [role=status]").textContent)`)
	x.click("button", "Stop")
	x.find("button", "Go on")
	at := looked()
	var stopped int
	testkit.Eventually(t, "the requests of the search have ended", func() bool {
		n := b.calls("fila.browse")
		same := n == stopped
		stopped = n
		return same && b.streams() <= 1 // what is left are the live figures
	})
	for i := range 3 { // seconds in which the search would have gone on: the figures of the page do
		b.enqueue(1, "orders", "later", "KEY", "z", "DELAY", "3600000")
		x.until("the figures of the page go on", `(n) => [...document.querySelectorAll(".figure")].some((f) => f.textContent === "Delayed" + n)`, itoa(i+1))
	}
	if n := b.calls("fila.browse"); n != stopped {
		t.Errorf("%d pages were read after the search was stopped", n-stopped)
	}
	if now := looked(); now != at || at == 0 || at >= many {
		t.Errorf("it was stopped at %d of %d, and is at %d", at, many, now)
	}

	var alone, searched probe
	alone.during(b, func() { pass(time.Second) })
	x.link(0)
	searched.during(b, func() {
		x.click("button", "Go on")
		x.until("it has come to its end", `() => /looked at all .* found 0$/m.test(document.querySelector(".progress [role=status]").textContent)`)
	})
	t.Logf("stopped after %d of %d messages and %d pages; all of them took %d pages", at, many, stopped-before, b.calls("fila.browse")-before)
	t.Logf("a command of another client, alone: %v; while the search runs: %v", &alone, &searched)
	if more := searched.at(1) - alone.at(1); *strict && more > waitMax {
		t.Errorf("another client waits %s longer, want at most %s", more, waitMax)
	}
	// Pages of 200, 800, 3,200 and then 10,000 messages, before the stop and after it, and one that it cut off.
	if pages, most := b.calls("fila.browse")-before, 2*3+many/10_000+2; pages > most {
		t.Errorf("%d pages were read for %d messages, want at most %d", pages, many, most)
	}
}
