package dashboard

import (
	"fmt"
	"testing"

	"github.com/faisca/fila/internal/client"
)

// What a search has found is counted, then cancelled or rescheduled at a rate, with the command line beneath it; boxes
// choose some of it. Nothing else changes.
func TestWhatASearchHasFoundIsActedOn(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders", "NODLQ")
	b.enqueue(214, "orders", "the needle", "KEY", "a")
	b.enqueue(100, "orders", "hay", "KEY", "b")
	x := open(t, browse(t), b.url, "#/queues/orders/messages?payload=needle")
	x.click("button", "Cancel all that are found")
	x.wait("Cancel 214 messages")
	x.wait("and more like it")
	x.shoot("batch")
	x.fill("textbox", "Type orders to confirm", "orders")
	x.fill("spinbutton", "Messages per second", "")
	x.click("button", "Cancel 214 messages")
	x.wait("214 of 214 cancelled")
	if n := b.do("FILA.STATS", "orders").(client.Map).Int("ready"); n != 100 {
		t.Errorf("%d messages are left, want 100", n)
	}

	// Two of them, by their boxes; a rate leaves time to stop.
	x.visit("#/")
	x.visit("#/queues/orders/messages?key=b")
	x.until("there are boxes", `() => document.querySelectorAll("tbody input[type=checkbox]").length >= 50`)
	x.until("two are chosen", `() => { for (const box of [...document.querySelectorAll("tbody input[type=checkbox]")].slice(0, 2)) { if (!box.checked) { box.click(); } } return document.querySelectorAll("tbody input:checked").length === 2; }`)
	x.click("button", "Reschedule 2 messages")
	x.fill("spinbutton", "Ready in, ms", "3600000")
	x.wait("FILA.RESCHEDULE orders")
	x.until("it is sent", `() => { const b = [...document.querySelectorAll("form button[type=submit]")].find((b) => b.textContent === "Reschedule 2 messages"); b?.click(); return !!b; }`)
	x.wait("2 of 2 rescheduled")
	if n := b.do("FILA.STATS", "orders").(client.Map).Int("delayed"); n != 2 {
		t.Errorf("%d messages are delayed, want 2", n)
	}
	x.visit("#/")
	x.visit("#/queues/orders/messages?status=ready")
	x.click("button", "Cancel all that are found")
	x.wait("Cancel 98 messages")
	x.fill("textbox", "Type orders to confirm", "orders")
	x.fill("spinbutton", "Messages per second", "5")
	x.click("button", "Cancel 98 messages")
	x.wait("left")
	x.click("button", "Stop")
	x.wait("stopped")
	if n := b.do("FILA.STATS", "orders").(client.Map).Int("ready"); n == 0 || n > 97 {
		t.Errorf("%d messages are left of 98 after a stop", n)
	}
	x.wantQuiet()
}

// A search among dead letters is redriven by the broker, and says how many of them have died again.
func TestASearchAmongDeadLettersIsRedriven(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.die(3, "orders", func(i int) string { return fmt.Sprint("broken ", i) }, "HEADER", "kind", "new")
	b.die(2, "orders", func(int) string { return "broken" }, "HEADER", "kind", "old")
	x := open(t, browse(t), b.url, "#/queues/orders.dlq/messages?header=kind&value=new")
	x.click("button", "Redrive all that are found")
	x.wait("Redrive 3 messages")
	x.fill("spinbutton", "Messages per second", "1")
	x.wait("FILA.REDRIVE orders.dlq HEADER kind new UNTIL")
	x.click("button", "Redrive 3 messages")
	lease := b.do("FILA.LEASE", "orders", "BLOCK", "0").([]any)
	receipt := client.Texts(lease[0])[0]
	b.do("FILA.NACK", "orders", receipt, "DEAD", "ERROR", "broken again")
	x.wait("3 of 3 moved")
	x.wait("1 have died again")
	if n := b.do("FILA.STATS", "orders.dlq").(client.Map).Int("dead"); n != 3 {
		t.Errorf("%d messages are dead, want the two others and the one that died again", n)
	}
	x.wantQuiet()
}
