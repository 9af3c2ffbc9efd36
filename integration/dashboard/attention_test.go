package dashboard

import (
	"fmt"
	"testing"
)

// Of ten thousand queues, 500 have no consumer: the first page says so, lists and sorts all of them, and leads to each by
// two clicks, with the reason. A dead-letter queue is shown with its queue.
func TestWhatNeedsAttentionIsFoundAmongAllQueues(t *testing.T) {
	n := *manyQueues
	if testing.Short() {
		n /= 10
	}
	b := start(t, [2]string{})
	b.many(n, 0)
	alone := n / 20
	for i := range alone {
		queue := fmt.Sprintf("queue-%05d", 20*i+13)
		for range 1 + i%3 {
			b.do("FILA.ENQUEUE", queue, "x")
		}
	}
	for range 5 {
		b.do("FILA.ENQUEUE", fmt.Sprintf("queue-%05d", n-7), "x")
	}
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.die(2, "orders", func(int) string { return "no such customer" })
	x := open(t, browse(t), b.url, "#/")
	many := fmt.Sprintf("%s queues have no consumer", grouped(alone))
	x.wait(many)
	x.wait("1 queue has dead letters")
	x.shoot("attention")
	for _, theme := range []string{"light", "dark"} {
		x.theme(theme)
		x.size(390, 800)
		x.drawn()
		x.narrow("attention")
		x.shoot("attention-390-" + theme)
		x.size(1280, 900)
		x.shoot("attention-1280-" + theme)
	}

	// The queue with the most messages, at the end of the names, is first when all are sorted.
	x.click("button", "Ready")
	x.until("the queue with the most messages is first", `(name) => [...document.querySelectorAll("caption")].some((c) => c.textContent === "Queues" && c.closest("table").querySelector("tbody th").textContent === name)`, fmt.Sprintf("queue-%05d", n-7))

	for _, i := range []int{0, alone / 2, alone - 1} {
		queue := fmt.Sprintf("queue-%05d", 20*i+13)
		x.visit("#/")
		x.click("link", many)
		x.rows("Queues", min(100, alone))
		x.fill("searchbox", "Filter by name", queue)
		x.rows("Queues", 1) // else the list may be drawn again between the press of the button and its release
		x.click("link", queue)
		x.wait("no consumer holds a lease of the queue, waits, or has asked within a minute")
	}

	// The dead-letter queue opens on its messages, and is one click from the list.
	x.visit("#/")
	x.fill("searchbox", "Filter by name", "orders")
	x.rows("Queues", 1)
	x.click("link", "2")
	x.wait("no such customer")
	x.click("link", "orders")
	x.wait("Dead letters go to")
	x.wantQuiet()
}

// grouped writes a number as the page does.
func grouped(n int) string {
	if n < 1000 {
		return itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
