package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/input"
	"github.com/go-rod/rod/lib/launcher"
	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/testkit"
)

func itoa(n int) string { return strconv.Itoa(n) }

// chromium returns the browser to test with. A test in CI fails without one.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("TEST_BROWSER"), "chromium", "chromium-browser", "google-chrome"} {
		if file, err := exec.LookPath(name); name != "" && err == nil {
			return file
		}
	}
	t.Fatal("there is no Chromium (make setup-dashboard installs it)")
	return ""
}

// browse starts a browser that ends with the test.
func browse(t *testing.T) *rod.Browser {
	t.Helper()
	l := launcher.New().Bin(chromium(t)).Leakless(false).Headless(true).NoSandbox(true).
		Set("disable-gpu").Set("disable-quic").Set("disable-background-networking").Set("force-color-profile", "srgb").
		Set("font-render-hinting", "none").Set("disable-dev-shm-usage").UserDataDir(t.TempDir())
	address, err := l.Launch()
	if err != nil {
		t.Fatal(err)
	}
	b := rod.New().ControlURL(address)
	if err := b.Connect(); err != nil {
		l.Kill()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.Close()
		l.Kill()
	})
	return b
}

// tab is a page of the dashboard. Whatever the browser complains about fails the test.
type tab struct {
	*rod.Page

	t    *testing.T
	base string

	mu         sync.Mutex
	complaints []string
}

// open opens the dashboard in a tab of its own, of a browser without cookies.
func open(t *testing.T, browser *rod.Browser, url, hash string) *tab {
	t.Helper()
	private, err := browser.Incognito()
	if err != nil {
		t.Fatal(err)
	}
	page, err := private.Page(proto.TargetCreateTarget{URL: "about:blank"})
	if err != nil {
		t.Fatal(err)
	}
	x := &tab{Page: page, t: t, base: url}
	x.watch()
	x.size(1280, 900)
	x.visit(hash)
	t.Cleanup(func() {
		x.wantQuiet()
		_, _ = proto.TargetCloseTarget{TargetID: page.TargetID}.Call(browser) // also if the page would ask whether to leave it
	})
	return x
}

// watch collects what the browser complains about, and requests to other hosts.
func (x *tab) watch() {
	x.t.Helper()
	for _, enable := range []interface{ Call(proto.Client) error }{proto.RuntimeEnable{}, proto.LogEnable{}, proto.NetworkEnable{}, proto.PageEnable{}, proto.AccessibilityEnable{}} {
		if err := enable.Call(x); err != nil {
			x.t.Fatal(err)
		}
	}
	if _, err := x.EvalOnNewDocument(`addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI + " " + e.sample));`); err != nil {
		x.t.Fatal(err)
	}
	go x.EachEvent(func(e *proto.RuntimeConsoleAPICalled) {
		if e.Type == proto.RuntimeConsoleAPICalledTypeError || e.Type == proto.RuntimeConsoleAPICalledTypeWarning {
			text, _ := json.Marshal(e.Args)
			x.complain("console: " + string(text))
		}
	}, func(e *proto.RuntimeExceptionThrown) {
		x.complain("exception: " + e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
	}, func(e *proto.LogEntryAdded) {
		// The browser notes each reply with an error; that a command is refused is for the page to say.
		if e.Entry.Level == proto.LogLogEntryLevelError && e.Entry.Source != proto.LogLogEntrySourceNetwork {
			x.complain(fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
		}
	}, func(e *proto.NetworkRequestWillBeSent) {
		for _, own := range []string{x.base, "blob:", "data:", "about:"} {
			if strings.HasPrefix(e.Request.URL, own) {
				return
			}
		}
		x.complain("a request to " + e.Request.URL)
	})()
}

func (x *tab) complain(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complaints = append(x.complaints, text)
}

// wantQuiet fails if the browser has complained.
func (x *tab) wantQuiet() {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.complaints {
		x.t.Errorf("the browser complains: %s", c)
	}
	x.complaints = nil
}

// visit goes to a page, by what is behind the "#" of its address.
func (x *tab) visit(hash string) {
	x.t.Helper()
	if err := x.Navigate(x.base + hash); err != nil {
		x.t.Fatal(err)
	}
	x.settle()
}

// settle waits until nothing says that it is loading.
func (x *tab) settle() {
	x.t.Helper()
	x.until("the page is there", `() => document.readyState === "complete" && !!document.querySelector("h1, .login") && ![...document.querySelectorAll("[role=status]")].some((e) => /^Loading/.test(e.textContent))`)
}

// rows waits until the table of that caption has so many rows.
func (x *tab) rows(caption string, n int) {
	x.t.Helper()
	x.until(fmt.Sprintf("%q has %d rows", caption, n), `(caption, n) => {
		const table = [...document.querySelectorAll("table")].find((t) => t.caption?.textContent === caption);
		return table?.tBodies[0].rows.length === n;
	}`, caption, n)
}

// until waits for a JavaScript function to return true.
func (x *tab) until(what, js string, args ...any) {
	x.t.Helper()
	var last error
	held := false
	defer func() {
		if !held {
			x.shoot("failed")
			x.t.Logf("the last error was %v; the page says:\n%s", last, x.text())
		}
	}()
	testkit.Eventually(x.t, what, func() bool {
		r, err := x.Eval(js, args...)
		last = err
		held = err == nil && r.Value.Bool()
		return held
	})
}

// drawn waits until the page shows what it is about.
func (x *tab) drawn() {
	x.t.Helper()
	x.until("the page is drawn", `() => [...document.querySelectorAll("main .card")].every((card) => card.querySelector("tbody tr, .empty, .facts, .pick, pre, textarea, .progress"))`)
}

// text returns what the page says.
func (x *tab) text() string {
	r, err := x.Eval(`() => document.body.innerText`)
	if err != nil {
		return err.Error()
	}
	return r.Value.Str()
}

// wait waits until the page says something.
func (x *tab) wait(text string) {
	x.t.Helper()
	x.until("the page says "+strconv.Quote(text), `(text) => document.body.innerText.includes(text)`, text)
}

// gone waits until the page does not say something any more.
func (x *tab) gone(text string) {
	x.t.Helper()
	x.until("the page no longer says "+strconv.Quote(text), `(text) => !document.body.innerText.includes(text)`, text)
}

var errNone = errors.New("there is none")

// look finds an element by its role and its name, as assistive technology does: what is behind an
// open dialog is not to be found. Of several it is the first.
func (x *tab) look(role, name string) (*rod.Element, error) {
	root, err := proto.DOMGetDocument{}.Call(x)
	if err != nil {
		return nil, err
	}
	found, err := proto.AccessibilityQueryAXTree{NodeID: root.Root.NodeID, AccessibleName: name, Role: role}.Call(x)
	if err != nil {
		return nil, err
	}
	for _, node := range found.Nodes {
		if node.Ignored || node.BackendDOMNodeID == 0 {
			continue
		}
		object, err := proto.DOMResolveNode{BackendNodeID: node.BackendDOMNodeID}.Call(x)
		if err != nil {
			continue // it has gone since
		}
		return x.ElementFromObject(object.Object)
	}
	return nil, errNone
}

// find waits for an element with a role and a name.
func (x *tab) find(role, name string) *rod.Element {
	x.t.Helper()
	var found *rod.Element
	defer func() {
		if found == nil {
			x.shoot("failed")
			x.t.Logf("the page says:\n%s", x.text())
		}
	}()
	testkit.Eventually(x.t, fmt.Sprintf("there is a %s %q", role, name), func() bool {
		if e, err := x.look(role, name); err == nil {
			found = e
		}
		return found != nil
	})
	return found
}

// click clicks what has a role and a name. The page may be drawn again meanwhile, so it tries again.
func (x *tab) click(role, name string) {
	x.t.Helper()
	var last error
	for range 10 {
		if last = x.hit(x.find(role, name).Timeout(testkit.Patience())); last == nil {
			return
		}
	}
	x.t.Fatalf("%s %q cannot be clicked: %v", role, name, last)
}

var errMissed = errors.New("the click came to something else")

// hit clicks an element. Where the page is drawn again between the look for its place and the click, this comes to
// something else: then it has no effect, and hit returns an error.
func (x *tab) hit(e *rod.Element) error {
	if err := e.ScrollIntoView(); err != nil {
		return err
	}
	_, err := e.Eval(`() => {
		const kinds = ["pointerdown", "mousedown", "pointerup", "mouseup", "click"], to = this;
		let hit = false;
		const guard = (e) => {
			if (to.contains(e.target)) {
				hit ||= e.type === "click";
			} else if (e.isTrusted) {
				e.preventDefault();
				e.stopImmediatePropagation();
			}
		};
		kinds.forEach((k) => addEventListener(k, guard, true));
		window.clicked = () => {
			kinds.forEach((k) => removeEventListener(k, guard, true));
			return hit;
		};
	}`)
	if err != nil {
		return err
	}
	err = e.Click(proto.InputMouseButtonLeft, 1)
	r, gone := x.Eval(`() => window.clicked?.() ?? true`)
	switch {
	case gone != nil, r.Value.Bool(): // gone is the page, by a link to another one
		return err
	case err != nil:
		return err
	}
	return errMissed
}

// fill types a text into a field, in place of what is there.
func (x *tab) fill(role, name, text string) {
	x.t.Helper()
	testkit.Eventually(x.t, fmt.Sprintf("the %s %q has the focus", role, name), func() bool {
		e := x.find(role, name)
		if e.Focus() != nil {
			return false // it has been drawn again
		}
		r, err := e.Eval(`() => { this.select && this.select(); return document.activeElement === this; }`)
		return err == nil && r.Value.Bool()
	})
	if text == "" {
		x.press(input.Delete)
		return
	}
	if err := x.InsertText(text); err != nil {
		x.t.Fatal(err)
	}
}

// choose chooses an option of a field by its value.
func (x *tab) choose(name, value string) {
	x.t.Helper()
	testkit.Eventually(x.t, fmt.Sprintf("%q is chosen of %q", value, name), func() bool {
		r, err := x.find("combobox", name).Eval(`(value) => {
			this.value = value;
			const there = this.isConnected && this.value === value;
			there && this.dispatchEvent(new Event("change", { bubbles: true }));
			return there;
		}`, value)
		return err == nil && r.Value.Bool()
	})
}

// press presses keys, one after the other.
func (x *tab) press(keys ...input.Key) {
	x.t.Helper()
	for _, k := range keys {
		if err := x.Keyboard.Press(k); err != nil {
			x.t.Fatal(err)
		}
		if err := x.Keyboard.Release(k); err != nil {
			x.t.Fatal(err)
		}
	}
}

// size sets the size of the window.
func (x *tab) size(width, height int) {
	x.t.Helper()
	if err := x.SetViewport(&proto.EmulationSetDeviceMetricsOverride{Width: width, Height: height, DeviceScaleFactor: 1}); err != nil {
		x.t.Fatal(err)
	}
}

// theme makes the browser prefer light or dark.
func (x *tab) theme(scheme string) {
	x.t.Helper()
	media := proto.EmulationSetEmulatedMedia{Features: []*proto.EmulationMediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	if err := media.Call(x); err != nil {
		x.t.Fatal(err)
	}
}

// shoot keeps a picture of the page, to be looked at.
func (x *tab) shoot(name string) {
	x.t.Helper()
	dir := filepath.Join("..", "..", ".cache", "dashboard")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		x.t.Error(err)
		return
	}
	picture, err := x.Screenshot(true, &proto.PageCaptureScreenshot{Format: proto.PageCaptureScreenshotFormatPng})
	if err != nil {
		x.t.Error(err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		x.t.Error(err)
	}
}

// login logs in by the form.
func (x *tab) login(user, password string) {
	x.t.Helper()
	x.fill("textbox", "User", user)
	x.fill("textbox", "Password", password)
	x.click("button", "Log in")
	x.until("the login is done", `() => !document.querySelector(".login")`)
	x.settle()
}
