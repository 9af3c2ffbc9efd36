package dashboard

import (
	"net/url"
	"testing"

	"github.com/go-rod/rod/lib/input"

	"github.com/faisca/fila/internal/testkit"
)

// line waits until the line of the search is this.
func (x *tab) line(want string) {
	x.t.Helper()
	x.until("the line is "+want, `(want) => document.querySelector(".query input").value === want`, want)
}

// A search is one line. The address has it, whichever of both is written, and gives the line back.
func TestASearchIsALineAndAnAddress(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(1, "orders", `say "hi" to  them`, "KEY", "acme", "HEADER", "tenant", "a b")
	b.enqueue(2, "orders", "plain words", "KEY", "acme", "HEADER", "tenant", "globex")
	b.enqueue(3, "orders", "key:acme is no condition", "KEY", "globex", "DELAY", "3600000")
	x := open(t, browse(t), b.url, "#/queues/orders/messages")
	x.rows("Messages", 6)
	found := func(n int) {
		t.Helper()
		if n == 0 { // an empty table is shown while the search runs only
			x.wait("No message is like that.")
			return
		}
		x.rows("Messages", n)
	}
	for line, want := range map[string]struct {
		rows    int
		address string
	}{
		`words`:                        {2, "payload=words"},
		`plain words key:acme`:         {2, "key=acme&payload=plain words"},
		`status:delayed`:               {3, "status=delayed"},
		`key:acme header:"tenant=a b"`: {1, "header=tenant&key=acme&value=a b"},
		`header:tenant`:                {3, "header=tenant"},
		`payload:"\"hi\" to  them"`:    {1, `payload="hi" to  them`},
		`payload:"key:acme is"`:        {3, "payload=key:acme is"},
		`since:1h until:1d`:            {0, ""},
		`since:1h`:                     {6, "since=1h"},
		`other:thing`:                  {0, "payload=other:thing"},
	} {
		x.fill("combobox", "Search messages", line)
		x.press(input.Escape)
		x.click("button", "Search")
		if line == `since:1h until:1d` { // nothing is between them, which the broker says
			x.wait("is after UNTIL")
			continue
		}
		found(want.rows)
		query, err := url.ParseQuery(want.address)
		if err != nil {
			t.Fatal(err)
		}
		x.until(line+" is in the address as "+want.address, `(want) => { const q = new URLSearchParams(location.hash.split("?")[1]); q.sort(); return q.toString() === want; }`, query.Encode())
		if err := x.Reload(); err != nil {
			t.Fatal(err)
		}
		x.line(line)
		found(want.rows)
	}
	x.wantQuiet()
}

// The line offers how to go on with it, by keyboard and by mouse; times are picked in fields; what is wrong is said.
func TestTheLineOfASearchOffersConditions(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(2, "orders", "x", "KEY", "acme", "DELAY", "3600000")
	b.enqueue(1, "orders", "x", "KEY", "acme")
	x := open(t, browse(t), b.url, "#/queues/orders/messages")
	x.rows("Messages", 3)
	x.fill("combobox", "Search messages", "x st")
	x.find("option", "status: ready, delayed, leased, dead or done")
	x.press(input.ArrowDown, input.Enter)
	x.line("x status:")
	x.onBoth(axe(t), "the line of a search")
	x.size(1280, 900)
	x.click("option", "status:delayed")
	x.line("x status:delayed ")
	x.press(input.Escape, input.Enter)
	x.rows("Messages", 2)

	x.fill("combobox", "Search messages", "status:asleep")
	x.wait("is no status: write ready, delayed, leased, dead or done.")
	x.fill("combobox", "Search messages", "since:yesterdayish")
	x.wait("is no time: write an age such as 2h")
	x.fill("combobox", "Search messages", "key:acme")
	x.press(input.Escape)
	x.until("the times are open", `() => { const d = document.querySelector("details.times"); d.open = true; return d.open; }`)
	x.until("a time is picked", `() => { const i = document.querySelector("details.times input"); i.value = "2020-01-31T14:00"; i.dispatchEvent(new Event("input", { bubbles: true })); return true; }`)
	x.line("key:acme since:2020-01-31T14:00")
	x.onBoth(axe(t), "the times of a search")
	x.size(1280, 900)
	x.click("button", "Search")
	x.rows("Messages", 3)
	x.wantQuiet()
}

// A search is kept under a name, found again after a reload and in another queue, and forgotten.
func TestSearchesAreKeptAsViews(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.QUEUE", "CREATE", "mails")
	b.enqueue(2, "orders", "x", "KEY", "acme", "DELAY", "3600000")
	b.enqueue(1, "orders", "x", "KEY", "acme")
	x := open(t, browse(t), b.url, "#/queues/orders/messages")
	x.rows("Messages", 3)
	x.wait("the newest first")
	x.fill("combobox", "Search messages", "status:delayed key:acme")
	x.press(input.Escape)
	views := func() {
		x.until("the views are open", `() => { const d = document.querySelector("details.views"); if (d) d.open = true; return !!d; }`)
	}
	views()
	x.fill("textbox", "Name of this search", "later of acme")
	x.click("button", "Keep")
	x.wait("Views (1)")
	x.onBoth(axe(t), "the views of a search")
	x.size(1280, 900)
	if err := x.Reload(); err != nil {
		t.Fatal(err)
	}
	x.line("")
	views()
	x.click("button", "later of acme")
	x.line("status:delayed key:acme")
	x.rows("Messages", 2)
	x.visit("#/queues/mails/messages")
	views()
	x.click("button", "later of acme")
	x.wait("No message is like that.")
	x.click("button", "Forget later of acme")
	x.gone("Views (1)")
	x.wantQuiet()
}
