package dashboard

import (
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/input"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// focused returns what has the focus: its role or tag, and its text or label.
func (x *tab) focused() string {
	x.t.Helper()
	r, err := x.Eval(`() => {
		const e = document.activeElement, said = (e.labels && e.labels[0] ? e.labels[0] : e).cloneNode(true);
		said.querySelectorAll("[aria-hidden]").forEach((h) => h.remove());
		return e.tagName.toLowerCase() + " " + (e.getAttribute("aria-label") ?? said.textContent).trim().slice(0, 60);
	}`)
	if err != nil {
		x.t.Fatal(err)
	}
	return r.Value.Str()
}

// tabTo presses Tab until something has the focus. Whatever it comes past must show its focus.
func (x *tab) tabTo(what string) {
	x.t.Helper()
	var passed []string
	for range 120 {
		x.press(input.Tab)
		r, err := x.Eval(`() => { const e = document.activeElement; if (e === document.body) return true; const s = getComputedStyle(e), p = getComputedStyle(e.closest(".code") ?? e); return s.outlineStyle !== "none" || p.outlineStyle !== "none"; }`)
		if err != nil {
			x.t.Fatal(err)
		}
		if !r.Value.Bool() {
			x.t.Errorf("the focus cannot be seen at %q", x.focused())
		}
		got := x.focused()
		if got == what {
			return
		}
		passed = append(passed, got)
	}
	x.t.Fatalf("Tab never comes to %q, but past %q", what, passed)
}

func (x *tab) wantFocus(what string) {
	x.t.Helper()
	testkit.EventuallyEqual(x.t, "the focus", what, x.focused)
}

// A queue is found, paused and purged without a mouse.
func TestEverythingIsReachedByKeyboard(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	x.drawn()
	x.tabTo("a Skip to the page")
	x.press(input.Enter)
	x.wantFocus("h1 Queues")

	x.press(input.Slash)
	x.wantFocus("input Filter by name")
	if err := x.InsertText("thumb"); err != nil {
		t.Fatal(err)
	}
	x.rows("Queues", 1)
	x.tabTo("a thumbnails")
	x.press(input.Enter)
	x.wait("fairness key")
	x.wantFocus("h1 thumbnails")

	x.tabTo("button Pause")
	x.press(input.Enter)
	x.wait("FILA.QUEUE PAUSE thumbnails OUT")
	x.wantFocus("select What")
	inside := `() => document.activeElement === document.body || !!document.activeElement.closest("dialog")`
	for range 12 { // the focus does not leave the dialog
		x.press(input.Tab)
		x.until("the focus is in the dialog", inside)
	}
	x.press(input.Escape)
	x.wantFocus("button Pause")

	x.press(input.Enter)
	x.wait("FILA.QUEUE PAUSE thumbnails OUT")
	x.tabTo("button Pause")
	x.press(input.Enter)
	x.wait("thumbnails is paused.")
	x.wantFocus("button Pause")
	x.tabTo("button Purge")
	x.press(input.Enter)
	x.wait("This removes 30 messages of thumbnails.")
	x.wantFocus("input Type thumbnails to confirm")
	x.press(input.Enter) // nothing was typed, so nothing is sent
	if err := x.InsertText("thumbnail"); err != nil {
		t.Fatal(err)
	}
	x.press(input.Enter)
	if n := b.do("FILA.STATS", "thumbnails").(client.Map).Int("ready"); n != 30 {
		t.Fatalf("%d messages are left with another name typed", n)
	}
	if err := x.InsertText("s"); err != nil {
		t.Fatal(err)
	}
	x.press(input.Enter)
	x.wait("30 messages removed.")
	x.wantFocus("button Purge")
}

// Tab comes to every control of every page, and whatever it comes to shows its focus.
func TestTabComesToEveryControl(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	for page, hash := range everyPage(b) {
		if page == "events" {
			continue // each event would be a link
		}
		if err := x.Navigate("about:blank"); err != nil { // so that Tab begins at the beginning
			t.Fatal(err)
		}
		x.visit(hash)
		x.drawn()
		x.until("nothing is looked for any more", `() => ![...document.querySelectorAll("[role=status]")].some((e) => /^Looking/.test(e.textContent)) && document.querySelectorAll(".progress ~ .table, .empty, .card").length > 0`)
		mark := `() => {
			const all = [...document.querySelectorAll("main :is(a, button, input, select, textarea, summary, [tabindex='0'])")].filter((e) => !e.disabled && e.checkVisibility());
			all.forEach((e) => e.removeAttribute("data-seen"));
			return all.length;
		}`
		r, err := x.Eval(mark)
		if err != nil {
			t.Fatal(err)
		}
		for range min(r.Value.Int(), 150) + 60 {
			x.press(input.Tab)
			if _, err := x.Eval(`() => document.activeElement.setAttribute("data-seen", getComputedStyle(document.activeElement.closest(".code") ?? document.activeElement).outlineStyle)`); err != nil {
				t.Fatal(err)
			}
		}
		r, err = x.Eval(`() => [...document.querySelectorAll("main :is(a, button, input, select, textarea, summary, [tabindex='0'])")].filter((e) => !e.disabled && e.checkVisibility())
			.slice(0, 120).filter((e) => !e.dataset.seen || e.dataset.seen === "none").map((e) => e.outerHTML.slice(0, 120))`)
		if err != nil {
			t.Fatal(err)
		}
		for _, missed := range r.Value.Arr() {
			t.Errorf("%s: Tab does not come to %s, or shows no focus there", page, missed.Str())
		}
	}
}

// Every control of every page has a name, and each page a heading that the title names, too.
func TestEveryPageIsNamed(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	titles := map[string]string{}
	for page, hash := range everyPage(b) {
		x.visit(hash)
		x.drawn()
		r, err := x.Eval(`() => [document.title, document.querySelectorAll("h1").length, document.querySelector("h1").textContent]`)
		if err != nil {
			t.Fatal(err)
		}
		a := r.Value.Arr()
		if a[1].Int() != 1 || !strings.HasPrefix(a[0].Str(), a[2].Str()) {
			t.Errorf("%s: the title is %q, and there are %d headings, the first is %q", page, a[0].Str(), a[1].Int(), a[2].Str())
		}
		titles[a[0].Str()] = page
	}
	if len(titles) < 12 {
		t.Errorf("only %d titles: %v", len(titles), titles)
	}
}
