package dashboard

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/testkit"
)

// The users of docs/how-to/security.md, with their names backwards as passwords, and one for workers.
const usersFile = `user default off
user viewer on >reweiv %R~* &* +@read +@connection -@consume -client|kill -client|unblock +subscribe +psubscribe +info +command +fila.cluster|status
user operator on >rotarepo ~* &* +@fila -fila.cluster +fila.cluster|status +@read +@connection +subscribe +psubscribe +info +slowlog|get +latency
user admin on >nimda ~* &* +@all
user worker on >rekrow ~* &* +@all
`

// withUsers writes the file of users and returns the arguments of a broker that has them.
func withUsers(t *testing.T, more ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(usersFile+strings.Join(more, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--auth.acl_file", file}
}

func admin() [2]string { return [2]string{"admin", "nimda"} }

// disabled returns the actions of the page that are disabled, with the reason of each, and those
// that are not.
func (x *tab) disabled() (reasons map[string]string, enabled []string) {
	x.t.Helper()
	r, err := x.Eval(`() => [...document.querySelectorAll("main .tipped")].map((e) => [e.querySelector("button").textContent, e.querySelector("button").getAttribute("aria-disabled"), e.querySelector(".tip")?.textContent ?? ""])`)
	if err != nil {
		x.t.Fatal(err)
	}
	reasons = map[string]string{}
	for _, row := range r.Value.Arr() {
		a := row.Arr()
		if a[1].Str() == "true" {
			reasons[a[0].Str()] = a[2].Str()
		} else {
			enabled = append(enabled, a[0].Str())
		}
	}
	return reasons, enabled
}

// A user that may only look sees every page, and can do nothing on any of them.
func TestAUserThatMayOnlyLookSeesAllAndDoesNothing(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	x.login("viewer", "reweiv")
	actions := 0
	for name, hash := range everyPage(b) {
		x.visit(hash)
		x.drawn()
		reasons, enabled := x.disabled()
		if len(enabled) > 0 {
			t.Errorf("%s: a viewer may %q", name, enabled)
		}
		for action, why := range reasons {
			if actions++; !strings.Contains(why, "needs the right") {
				t.Errorf("%s: %s is disabled because %q", name, action, why)
			}
		}
		if text := x.text(); strings.Contains(text, "The broker has refused") {
			t.Errorf("%s asks for what is refused:\n%s", name, text)
		}
		x.wantQuiet()
	}
	if actions < 40 {
		t.Errorf("only %d actions were seen", actions)
	}
	x.visit("#/queues/orders")
	x.click("button", "Purge")
	x.wait("Purge: needs the right +fila.purge")
	if e, err := x.look("dialog", "Purge orders"); err == nil {
		t.Errorf("a disabled action opens %v", e)
	}
	x.click("button", "Log out")
	x.find("textbox", "Password")
}

// An operator and an admin see every page as well, and no page asks for what it may not. An admin may do
// all that there is.
func TestOperatorsAndAdminsSeeEveryPage(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	browser := browse(t)
	for user, password := range map[string]string{"operator": "rotarepo", "admin": "nimda"} {
		x := open(t, browser, b.url, "#/")
		x.login(user, password)
		actions := 0
		for name, hash := range everyPage(b) {
			x.visit(hash)
			x.drawn()
			if text := x.text(); strings.Contains(text, "The broker has refused") {
				t.Errorf("%s, %s asks for what is refused:\n%s", user, name, text)
			}
			reasons, enabled := x.disabled()
			actions += len(enabled)
			for action, why := range reasons {
				if user == "admin" || !strings.Contains(why, "needs the right") {
					t.Errorf("%s, %s: %s is disabled because %q", user, name, action, why)
				}
			}
			x.wantQuiet()
		}
		if actions < 40 {
			t.Errorf("%s may do %d things", user, actions)
		}
	}
}

// An operator runs queues, and neither changes settings of the server nor sees the users.
func TestAnOperatorDoesWhatItsRightsSay(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	x.login("operator", "rotarepo")
	x.visit("#/queues/orders")
	x.drawn()
	if reasons, _ := x.disabled(); len(reasons) > 0 {
		t.Errorf("an operator may not %v", reasons)
	}
	x.click("button", "Pause")
	x.wait("FILA.QUEUE PAUSE orders OUT")
	x.click("button", "Pause") // of the dialog: what is behind it is not to be seen
	x.wait("orders is paused.")
	x.visit("#/users")
	x.wait("You may not see the users.")
	x.wait("needs the right +acl|users")
	x.visit("#/config/server")
	x.wait("needs the right +config|get")
	x.visit("#/clients")
	x.drawn()
	if reasons, _ := x.disabled(); len(reasons) > 0 {
		t.Errorf("+@connection gives CLIENT KILL, and it is disabled: %v", reasons)
	}
}

// lasts returns how long a page goes on after something was done, until it asks for a password.
func (x *tab) lasts(act func()) time.Duration {
	x.t.Helper()
	began := time.Now()
	act()
	x.until("the session has ended", `() => !!document.querySelector(".login")`)
	return time.Since(began)
}

// endMax is how long a session may outlive its user. Where the machine is busy with something else a
// measurement may take longer, so there are several, of which one has to hold, with as much time as others take away.
const (
	endMax   = time.Second
	endTries = 5
)

// endsInTime measures how long the session of a viewer at a page lasts after its user was deleted.
func (x *tab) endsInTime(what, hash string, create, remove func()) {
	x.t.Helper()
	var took []time.Duration
	for range endTries {
		create()
		x.login("viewer", "reweiv")
		x.visit(hash)
		x.wait("Live")
		took = append(took, x.lasts(remove).Round(time.Millisecond))
		if text := x.text(); strings.Contains(text, "orders") {
			x.t.Errorf("%s: the page still shows:\n%s", what, text)
		}
		if took[len(took)-1] <= testkit.Slowed(endMax, 20) {
			x.t.Logf("%s: the session and its stream end after %v", what, took)
			return
		}
	}
	x.t.Errorf("%s: the session ends after %v, want at most %s", what, took, endMax)
}

// viewerRule are the rules of the viewer of usersFile, for ACL SETUSER.
func viewerRule() []string {
	_, rest, _ := strings.Cut(usersFile, "user viewer ")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

// A session and its streams end with its user, within a second, and with them what the page shows. What
// had the cookie gets nothing any more.
func TestADeletedUserIsLoggedOut(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	create := func() { b.do(append([]string{"ACL", "SETUSER", "viewer"}, viewerRule()...)...) }
	var stolen []*proto.NetworkCookie
	remove := func() {
		var err error
		if stolen, err = x.Cookies([]string{b.url}); err != nil || len(stolen) != 1 {
			t.Fatalf("cookies %v: %v", stolen, err)
		}
		b.do("ACL", "DELUSER", "viewer")
	}
	for what, hash := range map[string]string{"queues": "#/", "a queue": "#/queues/orders", "events": "#/events?kind=all"} {
		x.endsInTime(what, hash, create, remove)
		create() // the same name again is another user
		req, err := http.NewRequest(http.MethodGet, b.url+"v1/session", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: stolen[0].Name, Value: stolen[0].Value})
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: the cookie of the session that has ended is answered with %d", what, r.StatusCode)
		}
		testkit.EventuallyEqual(t, what+": the number of streams that are left", 0, b.streams)
	}
}

func TestAWrongPasswordIsSaid(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	x := open(t, browse(t), b.url, "#/")
	x.fill("textbox", "User", "admin")
	x.fill("textbox", "Password", "wrong")
	x.click("button", "Log in")
	x.wait("User or password is wrong.")
	x.accessible(axe(t), "the form of the login")
}
