package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// another opens a second tab of the same browser, with its cookies.
func (x *tab) another(hash string) *tab {
	x.t.Helper()
	page, err := x.Browser().Page(proto.TargetCreateTarget{URL: "about:blank"})
	if err != nil {
		x.t.Fatal(err)
	}
	y := &tab{Page: page, t: x.t, base: x.base}
	y.watch()
	y.size(1280, 900)
	y.visit(hash)
	x.t.Cleanup(func() {
		y.wantQuiet()
		_ = page.Close()
	})
	return y
}

// The tabs of a browser have one session. A tab that shows one user does nothing for another one that
// has logged in with a second tab, and then shows that user.
func TestATabDoesNotActForTheUserOfAnother(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	x := open(t, browse(t), b.url, "#/throttles")
	x.login("operator", "rotarepo")
	x.drawn()
	x.click("button", "New throttle")
	x.fill("textbox", "Name", "attack")
	y := x.another("#/config")
	y.wait("operator")
	y.click("button", "Log out")
	y.login("admin", "nimda")
	y.wait("admin")
	if _, err := x.Activate(); err != nil {
		t.Fatal(err)
	}
	x.until("the tab shows the new user, or its dialog is refused", `() => {
		const set = [...document.querySelectorAll("dialog[open] button")].find((b) => b.textContent === "Set");
		set?.click();
		return document.querySelector(".user").textContent === "admin";
	}`)
	for _, throttle := range client.Maps(b.do("FILA.THROTTLE", "LIST", "COUNT", "100").([]any)[1]) {
		if throttle.Text("key") == "attack" {
			t.Error("what was typed as operator was done as admin")
		}
	}
	x.visit("#/users")
	x.drawn()
	x.wait("worker")
}

// A broker that restarts: a page says that it cannot be reached, and goes on when it is back. Where
// there are users, it asks for a login again, and comes back to the same page.
func TestAPageOutlivesARestartOfTheBroker(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	for name, login := range map[string][2]string{"without users": {}, "with users": admin()} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if login[0] != "" {
				args = withUsers(t)
			}
			b := launch(t, args...)
			b.serves(login)
			b.do("FILA.QUEUE", "CREATE", "orders")
			b.enqueue(7, "orders", "x", "KEY", "acme")
			x := open(t, browse(t), b.url, "#/")
			if login[0] != "" {
				x.login(login[0], login[1])
			}
			x.visit("#/queues/orders")
			x.wait("acme")
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
			x.wait("Connecting…")
			if err := b.Start(); err != nil {
				t.Fatal(err)
			}
			b.serves(login)
			if login[0] != "" {
				x.find("textbox", "Password")
				x.login(login[0], login[1])
			}
			x.wait("Live")
			x.wait("acme")
			b.enqueue(3, "orders", "x", "KEY", "acme")
			x.until("its figures are new", `() => [...document.querySelectorAll(".figure")].some((f) => f.textContent === "Ready10")`)
		})
	}
}

// On a slow link nothing is sent twice, and what is typed meanwhile is not lost.
func TestNothingIsSentTwiceOnASlowLink(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	x := open(t, browse(t), b.url, "#/queues/orders")
	x.wait("Live")
	x.link(700 * time.Millisecond)
	x.click("button", "Enqueue")
	x.fill("textbox", "Payload", "once")
	if _, err := x.Eval(`() => { const send = [...document.querySelectorAll("dialog[open] button")].find((b) => b.type === "submit"); for (let i = 0; i < 5; i++) { send.click(); send.form.requestSubmit(); } }`); err != nil {
		t.Fatal(err)
	}
	x.wait("Enqueued as")
	x.link(0)
	if n := b.do("FILA.STATS", "orders").(client.Map).Int("ready"); n != 1 {
		t.Errorf("%d messages were enqueued", n)
	}
}

// Names with characters that are not seen, or turn the direction of writing, neither change what stands
// beside them nor look in a line to copy like other names.
func TestCharactersThatAreNotSeenAreShownInLinesToCopy(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	name := "or\u202eders\u200b"
	b.do("FILA.QUEUE", "CREATE", name, "NODLQ")
	x := open(t, browse(t), b.url, "#/")
	x.drawn()
	x.click("link", name)
	x.wait("fairness key")
	x.click("button", "Pause")
	testkit.EventuallyEqual(t, "the line", `FILA.QUEUE PAUSE "or\xe2\x80\xaeders\xe2\x80\x8b" OUT`, x.command)
	x.click("button", "shell")
	testkit.EventuallyEqual(t, "the line for a shell", `fila call FILA.QUEUE PAUSE $'or\xe2\x80\xaeders\xe2\x80\x8b' OUT`, x.command)
	r, err := x.Eval(`() => getComputedStyle(document.querySelector("h1")).unicodeBidi`)
	if err != nil || r.Value.Str() != "isolate" {
		t.Errorf("a heading has %v, %v", r, err)
	}
}

// A page of another origin, or of another name for this machine, gets nothing done, with the cookie of
// a session or without it.
func TestAnotherSiteGetsNothingDone(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	b.do("FILA.QUEUE", "CREATE", "orders")
	x := open(t, browse(t), b.url, "#/")
	x.login("admin", "nimda")
	cookies, err := x.Cookies([]string{b.url})
	if err != nil || len(cookies) != 1 || !cookies[0].HTTPOnly || cookies[0].SameSite != proto.NetworkCookieSameSiteStrict {
		t.Fatalf("cookies %v: %v", cookies, err)
	}
	tried := 0
	for _, header := range []map[string]string{
		{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"}, {"Host": "evil.example"},
	} {
		for _, kind := range []string{"application/json", "text/plain", "application/x-www-form-urlencoded"} {
			req, err := http.NewRequest(http.MethodPost, b.url+"v1/command", strings.NewReader(`["FILA.QUEUE","DELETE","orders"]`))
			if err != nil {
				t.Fatal(err)
			}
			req.AddCookie(&http.Cookie{Name: cookies[0].Name, Value: cookies[0].Value})
			req.Header.Set("Content-Type", kind)
			for name, value := range header {
				if req.Header.Set(name, value); name == "Host" {
					req.Host = value
				}
			}
			r, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if tried++; r.StatusCode != http.StatusForbidden {
				t.Errorf("%v, %s: %d", header, kind, r.StatusCode)
			}
		}
	}
	if n := len(b.do("FILA.QUEUE", "LIST").([]any)); n != 2 || tried != 15 {
		t.Errorf("%d queues are left after %d tries", n, tried)
	}
}
