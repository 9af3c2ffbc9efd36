package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
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
	x.fill("spinbutton", "Messages per second", "1")
	x.click("button", "Cancel 98 messages")
	x.wait("left")
	testkit.Eventually(t, "the first is cancelled", func() bool { return b.do("FILA.STATS", "orders").(client.Map).Int("ready") < 98 })
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

// What waits for its time is released; what does not is left out.
func TestFoundMessagesAreReleased(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(12, "orders", "later", "KEY", "acme", "DELAY", "3600000")
	b.enqueue(5, "orders", "now", "KEY", "acme")
	b.enqueue(7, "orders", "later", "KEY", "globex", "DELAY", "3600000")
	x := open(t, browse(t), b.url, "#/queues/orders/messages?key=acme")
	x.click("button", "Release all that are found")
	x.wait("Release 12 messages")
	x.wait("FILA.RESCHEDULE orders")
	x.click("button", "Release 12 messages")
	x.wait("12 of 12 released")
	if stats := b.do("FILA.STATS", "orders").(client.Map); stats.Int("ready") != 17 || stats.Int("delayed") != 7 {
		t.Errorf("%d messages are ready and %d delayed, want 17 and 7", stats.Int("ready"), stats.Int("delayed"))
	}
	x.wantQuiet()
}

// A batch that the page sends ends with its page: when another page is opened, which says so, and when the tab is closed.
func TestABatchEndsWithItsPage(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders", "NODLQ")
	b.enqueue(500, "orders", "x")
	x := open(t, browse(t), b.url, "#/")
	ready := func() int64 { return b.do("FILA.STATS", "orders").(client.Map).Int("ready") }
	begin := func() {
		t.Helper()
		x.visit("#/queues/orders/messages?status=ready")
		x.click("button", "Cancel all that are found")
		x.wait("when it is closed, it ends")
		x.fill("textbox", "Type orders to confirm", "orders")
		x.fill("spinbutton", "Messages per second", "5")
		before := ready()
		x.click("button", fmt.Sprintf("Cancel %d messages", before))
		x.wait("It ends when this page is closed.")
		testkit.Eventually(t, "the batch is under way", func() bool { return ready() < before })
	}
	ended := func(how string) {
		t.Helper()
		left := int64(0)
		testkit.Eventually(t, how+" has ended the batch, with its last command", func() bool {
			left = ready()
			pass(2 * time.Second) // in which it would go on
			return ready() == left
		})
		if left == 0 {
			t.Errorf("%s: the batch has come to its end", how)
		}
	}
	begin()
	x.click("link", "Keys")
	x.wait("Cancel: stopped with its page, ")
	ended("another page")
	begin()
	x.wantQuiet()
	if _, err := (proto.TargetCloseTarget{TargetID: x.TargetID}).Call(x.Browser()); err != nil { // asks nothing, as a browser that is killed
		t.Fatal(err)
	}
	ended("the tab is closed")
}

// Dead letters are chosen by their boxes and redriven by the broker; it is not resumed with others.
func TestChosenDeadLettersAreRedriven(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.die(5, "orders", func(i int) string { return fmt.Sprint("timeout after ", i, " s") })
	x := open(t, browse(t), b.url, "#/queues/orders.dlq/dead?cause=timeout after %23 s")
	choose := `(n) => {
		const boxes = [...document.querySelectorAll("table")].find((t) => t.caption?.textContent === "Messages of the group")?.querySelectorAll("tbody input[type=checkbox]") ?? [];
		for (const box of [...boxes].slice(0, n)) { if (!box.checked) { box.click(); } }
		return [...boxes].filter((box) => box.checked).length === n;
	}`
	x.until("two are chosen", choose, 2)
	x.click("button", "Redrive 2 messages")
	x.wait("FILA.REDRIVE orders.dlq ID ")
	x.wait("The broker goes on with it when this page is closed.")
	x.fill("spinbutton", "Messages per second", "1")
	x.until("it is sent", `() => { const b = [...document.querySelectorAll("form button[type=submit]")].find((b) => b.textContent === "Redrive 2 messages"); b?.click(); return !!b; }`)
	x.wait("2 of 2 moved")
	x.wait("those of a search")
	stats := b.do("FILA.STATS", "orders.dlq").(client.Map)
	if n := stats.Int("dead"); n != 3 {
		t.Errorf("%d messages are dead, want 3", n)
	}
	if _, err := x.look("button", "Resume"); err == nil {
		t.Error("a redrive of chosen messages is offered to be resumed, which would move others")
	}
	x.click("button", "Select the 3 shown")
	x.find("button", "Redrive 3 messages")
	for _, scheme := range []string{"light", "dark"} {
		x.theme(scheme)
		x.size(1280, 900)
		x.accessible(axe(t), "chosen dead letters "+scheme)
		x.shoot("chosen-" + scheme)
		x.size(390, 800)
		x.narrow("chosen dead letters")
		x.shoot("chosen-390-" + scheme)
	}
	x.wantQuiet()
}
