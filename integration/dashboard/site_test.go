package dashboard

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/input"

	"github.com/faisca/fila/internal/testkit"
)

// siteDir is where `make site` makes the site of documents.
func siteDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "site"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		t.Fatalf("%v (make site makes it)", err)
	}
	return dir
}

// The site works when it is opened from disk, and from a server that knows nothing of it: the search
// finds, the theme changes, every link of every page leads to a page and a heading, pictures are
// there. No request leaves the site, and the browser complains of nothing.
func TestTheSiteWorksFromDiskAndFromAServer(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	dir := siteDir(t)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	browser := browse(t)
	t.Run("disk", func(t *testing.T) {
		x := open(t, browser, "file://"+dir+"/", "index.html")
		x.searches()
		x.themes(false)
	})
	t.Run("server", func(t *testing.T) {
		x := open(t, browser, server.URL+"/", "index.html")
		x.searches()
		x.themes(true)
		x.reads()
		x.crawl(dir)
	})
}

// searches are what readers look for, with the page that has to be the first result or among the
// first three.
func (x *tab) searches() {
	x.t.Helper()
	x.visit("docs/tutorial/first-queue.html")
	for query, want := range map[string]string{
		"visibility timeout":  "docs/how-to/long-jobs.html",
		"dead letter":         "docs/how-to/dead-letters.html",
		"LEASELOST":           "docs/reference/errors.html",
		"storage.sync":        "docs/reference/configuration.html",
		"queue grows":         "docs/how-to/growing-queue.html",
		"growing queues":      "docs/how-to/growing-queue.html",
		"cron":                "docs/how-to/cron.html",
		"celery":              "docs/how-to/coming-from.html",
		"install debian":      "docs/how-to/packages.html",
		"upgrade":             "docs/how-to/packages.html",
		"kubernetes":          "docs/how-to/autoscaling.html",
		"fila_queue_messages": "docs/reference/metrics.html",
		"BOUNDARY nonsense":   "",
	} {
		x.fill("searchbox", "Search", query)
		x.until("the search answers", `(query) => document.getElementById("results").dataset.query === query`, query)
		r, err := x.Eval(`() => [...document.querySelectorAll("#results a")].slice(0, 3).map((a) => a.href)`)
		if err != nil {
			x.t.Fatal(err)
		}
		var found []string
		for _, v := range r.Value.Arr() {
			found = append(found, v.Str())
		}
		if want == "" && len(found) > 0 || want != "" && !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, x.base+want+"#") }) {
			x.t.Errorf("%q finds %q first, want %q", query, found, want)
		}
	}
	// By the keyboard alone: the slash, words, Enter.
	x.visit("docs/index.html")
	x.press(input.Slash)
	x.until("the field has the focus", `() => document.activeElement.id === "query"`)
	if err := x.InsertText("visibility timeout"); err != nil {
		x.t.Fatal(err)
	}
	x.until("there are results", `() => document.querySelector("#results a mark") !== null`)
	x.press(input.Enter)
	x.until("the page of the first result is there", `() => /#.+$/.test(location.href) && !location.pathname.endsWith("docs/index.html")`)
	x.wait("visibility timeout")
}

// themes follows the preference of the browser, then the button, and remembers it on other pages.
// With barriers, axe looks for some in both themes; it cannot on a page from disk, where it may not
// read the style sheet. Pages have room in a narrow window.
func (x *tab) themes(barriers bool) {
	x.t.Helper()
	brightness := `() => +getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]`
	is := func(dark bool, when string) {
		x.t.Helper()
		r, err := x.Eval(brightness)
		if err != nil {
			x.t.Fatal(err)
		}
		if got := r.Value.Int() < 128; got != dark {
			x.t.Errorf("%s: the page is dark: %v", when, got)
		}
	}
	for _, page := range []string{"index.html", "docs/how-to/production.html", "docs/reference/errors.html"} {
		for _, scheme := range []string{"light", "dark"} {
			x.theme(scheme)
			x.visit(page)
			is(scheme == "dark", page)
			if barriers {
				x.accessible(axe(x.t), page+" "+scheme)
			}
		}
		x.size(320, 800)
		x.narrow(page)
		x.size(1280, 900)
	}
	x.theme("light")
	x.visit("index.html")
	x.click("button", "Theme")
	is(true, "after the button")
	x.visit("docs/index.html")
	is(true, "on the next page")
	x.click("button", "Theme")
	is(false, "after the button again")
}

// reads looks at what helps to read: the contents of a page on its right, the pages before and after it, a menu that a phone
// folds, blocks whose commands are copied, and drawings that need no scrolling.
func (x *tab) reads() {
	x.t.Helper()
	is := func(what, js string) {
		x.t.Helper()
		x.until(what, js) // some of it is only so when the page has been drawn
	}
	x.visit("docs/how-to/rate-limit.html")
	is("the contents are on the right", `() => document.querySelector("aside").getBoundingClientRect().left > document.querySelector("main").getBoundingClientRect().right - 1`)
	is("the first heading is marked in them", `() => document.querySelector("aside a").getAttribute("aria-current") === "location"`)
	is("there are pages before and after it", `() => document.querySelectorAll(".beside a[href]").length === 2`)
	is("blocks are coloured", `() => getComputedStyle(document.querySelector(".code :is(.k, .kd, .kr)")).color !== getComputedStyle(document.querySelector(".code")).color`)
	is("of a session, the commands are copied", `() => {
		const code = document.querySelector(".code code:has(.command)")
		return copied(code).startsWith("FILA.QUEUE CREATE jobs\n") && !copied(code).includes("OK")
	}`)
	is("each block has a button", `() => [...document.querySelectorAll(".code")].every((c) => c.querySelector("button").textContent === "Copy")`)
	x.size(390, 800)
	x.visit("docs/how-to/rate-limit.html")
	is("a phone folds the menu", `() => !document.querySelector(".menu").open && document.querySelector("main h1").getBoundingClientRect().top < 400`)
	x.size(1280, 900)
	x.visit("ARCHITECTURE.html")
	is("drawings fit", `() => [...document.querySelectorAll(".drawing")].every((d) => d.scrollWidth <= d.clientWidth + 1) && document.querySelector(".drawing") !== null`)
	is("no table has an empty head", `() => [...document.querySelectorAll("thead")].every((h) => h.textContent.trim() !== "")`)
}

// crawl opens every page that is linked from another one, and looks at its links and pictures. Links
// are relative, so they hold from disk as well if each leads to a file of the directory.
func (x *tab) crawl(dir string) {
	x.t.Helper()
	ids := map[string][]string{} // by page
	type link struct{ from, to, fragment string }
	var links []link
	for next := []string{x.base + "index.html"}; len(next) > 0; next = next[1:] {
		page := next[0]
		if _, seen := ids[page]; seen {
			continue
		}
		if err := x.Navigate(page); err != nil {
			x.t.Errorf("%s: %v", page, err)
			ids[page] = nil
			continue
		}
		x.until(page+" is there", `() => document.readyState === "complete"`)
		r, err := x.Eval(`() => ({
			site: document.querySelector("main h1") !== null,
			ids: [...document.querySelectorAll("[id]")].map((e) => e.id),
			links: [...document.links].map((a) => a.href),
			broken: [...document.images].filter((i) => i.naturalWidth === 0).map((i) => i.src),
		})`)
		if err != nil {
			x.t.Fatal(err)
		}
		seen := r.Value
		if !seen.Get("site").Bool() {
			x.t.Errorf("%s is no page of the site", page)
		}
		for _, image := range seen.Get("broken").Arr() {
			x.t.Errorf("%s: the picture %s cannot be drawn", page, image.Str())
		}
		ids[page] = []string{""}
		for _, id := range seen.Get("ids").Arr() {
			ids[page] = append(ids[page], id.Str())
		}
		for _, a := range seen.Get("links").Arr() {
			to, fragment, _ := strings.Cut(a.Str(), "#")
			if strings.HasSuffix(to, "/") { // a server has shortened the address of this page
				to += "index.html"
			}
			switch {
			case strings.HasPrefix(to, x.base) && strings.HasSuffix(to, ".html"):
				if _, seen := ids[to]; !seen {
					if _, err := os.Stat(filepath.Join(dir, strings.TrimPrefix(to, x.base))); err != nil {
						x.t.Errorf("%s: %v", page, err)
					}
				}
				links = append(links, link{page, to, fragment})
				next = append(next, to)
			case strings.HasPrefix(to, "https://"):
			default:
				x.t.Errorf("%s has a link to %s: neither a page nor the web", page, to)
			}
		}
	}
	for _, l := range links {
		if !slices.Contains(ids[l.to], l.fragment) {
			x.t.Errorf("%s: %s has no heading #%s", l.from, l.to, l.fragment)
		}
	}
	if len(ids) < 60 || len(links) < 5*len(ids) {
		x.t.Errorf("the crawl saw %d pages and %d links", len(ids), len(links))
	}
	x.wantQuiet()
}
