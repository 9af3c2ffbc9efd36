package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// stuck is a tenant that does not move: what brings it there, and what the page says then.
type stuck struct {
	state string
	says  string // a part of the sentence
	bring func(b *broker, queue string)
}

// stuckKeys are tenants in every state that a key with messages has and keeps.
func stuckKeys() map[string]stuck {
	create := func(b *broker, queue string, options ...string) {
		b.do(append([]string{"FILA.QUEUE", "CREATE", queue}, options...)...)
	}
	lease := func(b *broker, queue string) string { return b.lease(queue, "worker-7", "VISIBILITY", "3600000") }
	return map[string]stuck{
		"key-paused": {"paused", "the key is paused", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme")
			b.do("FILA.KEY", "PAUSE", queue, "acme")
		}},
		"queue-paused": {"paused", "the deliveries of its queue are paused", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme")
			b.do("FILA.QUEUE", "PAUSE", queue, "OUT")
		}},
		"batched": {"gathering", "it has 1 of 20 messages of a batch", func(b *broker, queue string) {
			create(b, queue, "BATCH", "20", "BATCHWAIT", "3600000")
			b.enqueue(1, queue, "x", "KEY", "acme")
		}},
		"retry-after": {"held", `throttle "crm:held" is held until`, func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme", "THROTTLE", "crm:held")
			b.do("FILA.THROTTLE", "HOLD", "crm:held", "3600000")
		}},
		"slow": {"throttled", `throttle "crm:slow" has no token`, func(b *broker, queue string) {
			create(b, queue)
			b.do("FILA.THROTTLE", "SET", "crm:slow", "RATE", "0.001", "BURST", "1")
			b.enqueue(3, queue, "x", "KEY", "acme", "THROTTLE", "crm:slow")
			lease(b, queue)
		}},
		"narrow": {"concurrency", `throttle "crm:narrow" has 1 of 1 leases in use`, func(b *broker, queue string) {
			create(b, queue)
			b.do("FILA.THROTTLE", "SET", "crm:narrow", "CONCURRENCY", "1")
			b.enqueue(3, queue, "x", "KEY", "acme", "THROTTLE", "crm:narrow")
			lease(b, queue)
		}},
		"poor": {"no_credit", `budget "empty" has 0 credits available`, func(b *broker, queue string) {
			create(b, queue)
			b.do("FILA.BUDGET", "SET", "empty")
			b.enqueue(3, queue, "x", "KEY", "acme", "BUDGET", "empty")
		}},
		"in-order": {"ordered", "which is leased", func(b *broker, queue string) {
			create(b, queue, "ORDERED", "ON")
			b.enqueue(3, queue, "x", "KEY", "acme")
			lease(b, queue)
		}},
		"retried-in-order": {"ordered", "which is tried again", func(b *broker, queue string) {
			create(b, queue, "ORDERED", "ON", "BACKOFF", "3600000", "MAXBACKOFF", "3600000")
			b.enqueue(3, queue, "x", "KEY", "acme")
			b.do("FILA.NACK", queue, lease(b, queue), "ERROR", "no network")
		}},
		"all-at-work": {"busy", "1 consumer holds 1 lease of the queue, and none waits", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme")
			lease(b, queue)
		}},
		"alone": {"no_consumer", "no consumer holds a lease of the queue, waits, or has asked within a minute", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme")
		}},
		"about-to": {"ready", "it delivers when its turn comes", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme")
			b.do("FILA.ACK", queue, lease(b, queue))
		}},
		"out": {"leased", "consumers hold 3 of its messages, and there are no others to deliver", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme")
			for range 3 {
				lease(b, queue)
			}
		}},
		"later": {"delayed", "its messages wait for their time", func(b *broker, queue string) {
			create(b, queue)
			b.enqueue(3, queue, "x", "KEY", "acme", "DELAY", "3600000")
		}},
	}
}

// sentence matches what the page says for a reason of FILA.EXPLAIN: the page writes moments and durations as people read them.
func sentence(reason string) string {
	var parts []string
	for _, part := range regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+?Z|\b\d+(?:ms|[smhd])\b`).Split(reason, -1) {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return strings.Join(parts, `.+`)
}

// Why a tenant does not move is a sentence that is at most three clicks from the first page: the queue, the tenant. It is
// what FILA.EXPLAIN says. The states are those that the guide for a growing queue names, and those in which nothing is wrong.
func TestWhyATenantDoesNotMove(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "growing-queue.md"))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{"ready": true, "leased": true, "delayed": true}
	_, held, _ := strings.Cut(string(guide), "### Messages are held up")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(held, -1) {
		for state := range strings.SplitSeq(row[1], ", ") {
			missing[strings.Trim(state, "`")] = true
		}
	}
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "first") // of a broker without queues the first page has the first steps
	x := open(t, browse(t), b.url, "#/")
	for queue, k := range stuckKeys() {
		delete(missing, k.state)
		k.bring(b, queue)
		x.visit("#/")
		clicks := 0
		click := func(name string) {
			t.Helper()
			clicks++
			x.click("link", name)
		}
		click(queue)
		if k.state != "ready" {
			x.wait(k.says) // it is in the row already
		}
		click("acme")
		x.wait("Key acme")
		explained := b.do("FILA.EXPLAIN", queue, "KEY", "acme").(client.Map)
		if state := explained.Text("state"); state != k.state {
			t.Errorf("%s: the state of the key is %s, want %s", queue, state, k.state)
		}
		want := sentence(explained.Text("reason"))
		if k.state == "ordered" { // the page names and links the message
			want = "It waits for " + explained.Text("waits_for") + ", " + k.says
		}
		x.until(queue+" is explained by "+want, `(state, says, want) => {
			const said = document.querySelector(".explain")?.innerText ?? "";
			return said.startsWith(state.replace("_", " ")) && said.includes(says) && new RegExp(want).test(said) && !/\d{4}-\d\d-\d\dT/.test(said);
		}`, k.state, k.says, want)
		if clicks > 3 {
			t.Errorf("%s: the sentence took %d clicks", queue, clicks)
		}
	}
	for state := range missing {
		t.Errorf("no tenant is in the state %s", state)
	}

	// A message of it says the same, as does the group of queues on the first page.
	x.visit("#/queues/narrow/messages/" + leasedIn(b, "narrow"))
	x.steps("Enqueued", "Leased")
	x.visit("#/")
	x.click("link", "1 queue is held up by the leases that a throttle allows")
	x.rows("Queues", 1)
	x.click("link", "narrow")
	x.wait(`throttle "crm:narrow" has 1 of 1 leases in use`)
	x.click("link", "acme")
	x.wait("Leases that fill a throttle")
	x.wait("worker-7")
	for _, scheme := range []string{"light", "dark"} {
		x.theme(scheme)
		x.accessible(axe(t), "a key that waits "+scheme)
	}
	x.wantQuiet()
}

// leasedIn returns the id of a leased message of a queue.
func leasedIn(b *broker, queue string) string {
	b.t.Helper()
	page, _ := b.do("FILA.BROWSE", queue, "STATUS", "leased").([]any)
	for _, m := range client.Maps(page[1]) {
		return m.Text("id")
	}
	b.t.Fatalf("%s has no leased message", queue)
	return ""
}
