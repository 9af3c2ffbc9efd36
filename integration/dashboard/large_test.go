package dashboard

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/client"
)

var (
	manyKeys   = flag.Int("keys", 20_000, "fairness keys of TestManyQueuesAndKeysChangeNothingButTheNumberShown; 1000000 for figures")
	manyQueues = flag.Int("queues", 10_000, "its queues")
)

// traffic are the requests and bytes that a page has asked for.
type traffic struct {
	requests int
	bytes    float64
}

// ask visits a page in a tab of its own, waits for what it must say, and returns what that took.
func (b *broker) ask(x *tab, hash, says string) (traffic, time.Duration) {
	b.t.Helper()
	var sum traffic
	wait := make(chan struct{})
	watched, stop := x.Page.WithCancel()
	go func() {
		defer close(wait)
		watched.EachEvent(func(*proto.NetworkRequestWillBeSent) { sum.requests++ }, func(e *proto.NetworkDataReceived) { sum.bytes += float64(e.DataLength) })()
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

// Ten thousand queues and very many keys: a page asks for as much as with ten of each, shows a
// page of them, and finds what is wrong with one at the end.
func TestManyQueuesAndKeysChangeNothingButTheNumberShown(t *testing.T) {
	b := start(t, [2]string{})
	some := func(n int, command func(i int) []string) {
		for i := 0; i < n; i += 500 {
			var batch [][]string
			for j := i; j < min(n, i+500); j++ {
				batch = append(batch, command(j))
			}
			if _, err := b.conn.Pipeline(t.Context(), batch...); err != nil {
				t.Fatal(err)
			}
		}
	}
	queue := func(i int) []string { return []string{"FILA.QUEUE", "CREATE", fmt.Sprintf("queue-%05d", i), "NODLQ"} }
	message := func(i int) []string {
		return []string{"FILA.ENQUEUE", "queue-00000", "x", "KEY", fmt.Sprintf("tenant-%07d", i)}
	}
	some(10, queue)
	some(10, message)
	x := open(t, browse(t), b.url, "#/")
	first, _ := b.ask(x, "#/", "queue-00009")
	keys, _ := b.ask(x, "#/queues/queue-00000", "tenant-0000009")

	some(*manyQueues, queue)
	some(*manyKeys, message)
	last := fmt.Sprintf("queue-%05d", *manyQueues-7)
	b.do("FILA.QUEUE", "PAUSE", last)
	alone := b.waits(t)
	manyFirst, tookFirst := b.ask(x, "#/", "10,000 queues")
	manyTheKeys, tookKeys := b.ask(x, "#/queues/queue-00000", "fairness keys")
	x.until("the first keys are there", `() => document.querySelectorAll(".card tbody tr").length === 20`)
	t.Logf("with %d queues and %d keys the first page is there after %s, the page of keys after %s", *manyQueues, *manyKeys, tookFirst, tookKeys)
	t.Logf("another client waits, alone: %s; with the page of keys open: %s", alone, b.waits(t))
	for name, pair := range map[string][2]traffic{"the queues": {first, manyFirst}, "the keys": {keys, manyTheKeys}} {
		if more := pair[1].requests - pair[0].requests; more > 2 { // those of a page that was open longer
			t.Errorf("%s: %d requests with ten, %d with many", name, pair[0].requests, pair[1].requests)
		}
		if pair[1].bytes > pair[0].bytes+400<<10 {
			t.Errorf("%s: %.0f bytes with ten, %.0f with many", name, pair[0].bytes, pair[1].bytes)
		}
	}

	x.visit("#/")
	x.drawn()
	x.until("a page of queues is shown", `() => document.querySelectorAll(".card tbody tr").length === 100`)
	x.shoot("many")
	x.click("button", "Next page")
	x.until("the next page is shown", `() => document.querySelectorAll(".card tbody tr").length === 100 && !document.querySelector(".pager button").disabled`)
	x.click("button", "First page")
	x.fill("searchbox", "Filter by name", "-0999")
	x.until("ten queues match", `() => document.querySelectorAll(".card tbody tr").length === 10`)
	x.visit("#/?show=wrong")
	x.click("button", "Look through all queues")
	x.wait("looked at 10,000 of 10,000 queues")
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
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	many := max(*manyKeys, 60_000)
	b.enqueue(many/2, "orders", `{"order": 1}`, "KEY", "a")
	b.enqueue(1, "orders", `{"order": 4711, "needle": true}`, "KEY", "b", "HEADER", "customer", "needle-7")
	b.enqueue(many/2, "orders", `{"order": 2}`, "KEY", "c")
	b.die(1, "orders", func(int) string { return "the needle is broken" }, "KEY", "d", "PRIORITY", "9")
	x := open(t, browse(t), b.url, "#/queues/orders/messages")
	x.drawn()
	for field, typed := range map[string]string{"Payload contains": "needle", "Header name": "customer"} {
		x.click("button", "Clear")
		x.fill("textbox", field, typed)
		x.click("button", "Search")
		x.until("the search by "+field+" has come to its end", `() => /looked at all .* found 1$/m.test(document.querySelector(".progress [role=status]").textContent)`)
	}
	x.visit("#/queues/orders.dlq/messages?error=*needle*")
	x.wait("the needle is broken")

	// What is not there is looked for through all of them: stopped, it says how far it came.
	x.visit("#/queues/orders/messages")
	x.drawn()
	x.fill("textbox", "Payload contains", "order")
	x.click("button", "Search")
	x.until("it stops by itself when it has found enough", `() => !/^Looking/.test(document.querySelector(".progress [role=status]").textContent)`)
	x.click("button", "Go on")
	x.until("it has found more", `() => +/found ([\d,]+)/.exec(document.querySelector(".progress [role=status]").textContent)[1].replace(",", "") > 200`)
	if n := b.do("FILA.STATS", "orders").(client.Map).Int("ready"); n != int64(many/2*2+1) {
		t.Errorf("%d messages are left: looking has changed something", n)
	}
}
