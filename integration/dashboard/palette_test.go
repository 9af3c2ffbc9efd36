package dashboard

import (
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/input"

	"github.com/faisca/fila/internal/client"
)

// chord presses a key while Ctrl is held.
func (x *tab) chord(k input.Key) {
	x.t.Helper()
	if err := x.KeyActions().Press(input.ControlLeft).Type(k).Release(input.ControlLeft).Do(); err != nil {
		x.t.Fatal(err)
	}
}

// onBoth looks for barriers in both themes and in windows of three widths.
func (x *tab) onBoth(source, where string) {
	x.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		x.theme(scheme)
		for _, width := range []int{320, 390, 1280} {
			x.size(width, 900)
			x.narrow(where)
			x.accessible(source, where+" "+scheme)
			x.shoot(strings.ReplaceAll(where, " ", "-") + "-" + itoa(width) + "-" + scheme)
		}
	}
}

// Ctrl-K goes to a page, a queue, or a message by its id, and ? lists the keys. Neither acts on what is typed into a field.
func TestCtrlKGoesToAPageAQueueOrAMessage(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.QUEUE", "CREATE", "mails")
	id := client.Text(b.do("FILA.ENQUEUE", "mails", "hello"))
	x := open(t, browse(t), b.url, "#/")
	x.find("heading", "2 queues")
	const field = "A page, a queue, or the id of a message"
	goTo := func(typed, shown string) {
		t.Helper()
		x.chord(input.KeyK)
		x.fill("combobox", field, typed)
		x.until(typed+" is found", `(shown) => document.querySelector(".goals [aria-selected=true]")?.innerText.replace(/\s+/g, " ") === shown`, shown)
		x.press(input.Enter)
	}
	goTo("throt", "Throttles page")
	x.find("heading", "Throttles")
	goTo("mails", "mails queue")
	x.find("heading", "mails")
	x.visit("#/queues/orders")
	goTo(id+":3", id+" message in mails") // a receipt, of another queue than that of the page
	x.steps("Enqueued", "Ready")

	x.chord(input.KeyK)
	x.fill("combobox", field, "mails")
	x.until("there are two", `() => document.querySelectorAll(".goals [role=option]").length === 2`)
	x.press(input.ArrowDown)
	x.until("the second is chosen", `() => document.querySelector(".goals [aria-selected=true]").innerText.startsWith("mails.dlq")`)
	x.onBoth(axe(t), "going to a queue")
	x.fill("combobox", field, "no such thing")
	x.wait("Nothing has such a name.")
	x.press(input.Escape)
	x.size(1280, 900)

	x.click("button", "Keys")
	x.wait("go to a page, a queue or a message")
	x.onBoth(axe(t), "the keys")
	x.press(input.Escape)
	x.gone("go to a page, a queue or a message")
	x.size(1280, 900)
	x.visit("#/")
	x.fill("searchbox", "Filter by name", "or")
	x.press(input.Key('?'))
	x.until("the question mark is typed", `() => document.querySelector("input[type=search]").value === "or?"`)
	x.wantQuiet()
}

// A page whose broker is away is grey and says as of when it is. It goes on when the broker is back.
func TestAPageSaysThatItIsOld(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	x := open(t, browse(t), b.url, "#/queues/orders")
	x.wait("No key has messages.")
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	x.wait("The broker cannot be reached. What is shown is as of ")
	x.until("the page is grey", `() => getComputedStyle(document.querySelector("main .card")).filter === "grayscale(1)"`)
	x.onBoth(axe(t), "a page that is old")
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	x.gone("The broker cannot be reached.")
	x.until("nothing stands at the top in place of the banner", `() => [...document.querySelector("main").childNodes].every((n) => n.nodeType === Node.ELEMENT_NODE)`)
	x.until("the page is not grey", `() => getComputedStyle(document.querySelector("main > *")).filter === "none"`)
}

// JSON is folded by a click, and no number of it is changed.
func TestJSONIsFolded(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	id := client.Text(b.do("FILA.ENQUEUE", "orders", `{"order": 9007199254740993, "lines": [{"sku": "A-17", "count": 2.50}], "paid": true, "note": null, "none": {}}`))
	x := open(t, browse(t), b.url, "#/queues/orders/messages/"+id)
	x.wait(`"order": 9007199254740993`)
	x.wait(`"count": 2.50`)
	x.find("button", "Copy the payload")
	x.onBoth(axe(t), "a payload")
	x.size(1280, 900)
	x.until("the lines are folded", `() => { const s = [...document.querySelectorAll(".json summary")].find((s) => s.innerText.startsWith('"lines"')); if (s?.parentElement.open) { s.click(); } return s && !s.parentElement.open; }`)
	x.gone("A-17")
	x.wait(`"paid": true`)
	x.click("button", "Text")
	x.wait(`"count": 2.50}], "paid"`)
}

// The history of a script shows what has changed between two versions.
func TestVersionsOfAScriptAreCompared(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	for _, n := range []string{"1", "2", "3"} {
		b.do("FILA.SCRIPT", "LOAD", "orders", "ON_FAILURE", "function on_failure(msg)\n  return { delay_ms = "+n+"000 }\nend\n")
	}
	x := open(t, browse(t), b.url, "#/queues/orders/scripts?hook=on_failure")
	x.rows("Sources that were loaded", 3)
	x.until("the second is open", `() => { const row = document.querySelectorAll("table tbody tr")[1]; [...row.querySelectorAll("button")].find((b) => b.textContent === "Source").click(); return true; }`)
	lines := func(want string) {
		t.Helper()
		x.until("the changes are "+want, `(want) => [...document.querySelectorAll(".diff .added, .diff .taken")].map((l) => l.textContent.trim()).join("|") === want`, want)
	}
	x.click("button", "Changes from the one before")
	lines("-   return { delay_ms = 1000 }|+   return { delay_ms = 2000 }")
	x.click("button", "Changes to the one that is loaded")
	lines("-   return { delay_ms = 2000 }|+   return { delay_ms = 3000 }")
	x.onBoth(axe(t), "versions of a script")
	x.wantQuiet()
}
