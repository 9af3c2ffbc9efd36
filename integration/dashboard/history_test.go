package dashboard

import (
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// The page of a key has its history, with links to its messages and the throttle that it waits for, whose page leads back.
func TestAKeyAndItsThrottleHaveAHistory(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.THROTTLE", "SET", "api", "CONCURRENCY", "1")
	for range 20 {
		b.do("FILA.ENQUEUE", "orders", "x", "KEY", "acme", "THROTTLE", "api")
	}
	b.do("FILA.LEASE", "orders", "VISIBILITY", "600000")
	testkit.Eventually(t, "the broker has kept something of the key", func() bool {
		all := client.Maps(b.do("FILA.HISTORY", "orders", "KEY", "acme"))
		return len(all) > 1 && all[len(all)-1].Int("ready") == 19
	})
	for _, width := range []int{1280, 390} {
		x := open(t, browse(t), b.url, "#/queues/orders/keys/acme")
		x.size(width, 800)
		x.wait("Share of the deliveries")
		x.until("the backlog is in its table", `() => [...document.querySelectorAll(".chart")[1].querySelectorAll("tbody td")].some((c) => c.textContent === "19")`)
		x.shoot("key-history")
		x.click("button", "1 h")
		x.until("the address has the range", `() => location.hash.includes("range=3600")`)
		x.click("link", "api")
		x.wait("Keys that wait for it")
		x.until("what has passed is in its table", `() => [...document.querySelectorAll(".chart")[1].querySelectorAll("tbody td")].some((c) => c.textContent === "1")`)
		x.click("button", "Live")
		x.until("the address has what is chosen", `() => location.hash.includes("range=live")`)
		x.until("the key is listed", `() => [...document.querySelectorAll("tbody a")].some((a) => a.textContent === "acme")`)
		x.shoot("throttle")
		x.click("link", "acme")
		x.click("link", "Its messages")
		x.until("its messages are searched", `() => location.hash.includes("messages?key=acme")`)
		x.visit("#/queues/orders?range=86400")
		x.wait("Messages per second")
		x.until("the backlog of the queue is in its table", `() => [...document.querySelectorAll(".chart")[1].querySelectorAll("tbody td")].some((c) => c.textContent === "19")`)
		x.shoot("queue-history")
	}
}
