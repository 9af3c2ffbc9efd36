package dashboard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The users of docs/security.md, with their names backwards as passwords, and one for workers.
const usersFile = `user default off
user viewer on >reweiv %R~* &* +@read +@connection -@consume -client|kill -client|unblock +subscribe +psubscribe +info +command
user operator on >rotarepo ~* &* +@fila +@read +@connection +subscribe +psubscribe +info +slowlog|get +latency
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

// An operator runs queues, and neither changes settings of the server nor sees the users.
func TestAnOperatorDoesWhatItsRightsSay(t *testing.T) {
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

// A session ends with its user, within a moment, and with it what the page shows.
func TestADeletedUserIsLoggedOut(t *testing.T) {
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	x := open(t, browse(t), b.url, "#/")
	x.login("viewer", "reweiv")
	x.drawn()
	b.do("ACL", "DELUSER", "viewer")
	x.find("textbox", "Password")
	if text := x.text(); strings.Contains(text, "orders") {
		t.Errorf("the page still shows:\n%s", text)
	}
}

func TestAWrongPasswordIsSaid(t *testing.T) {
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	x := open(t, browse(t), b.url, "#/")
	x.fill("textbox", "User", "admin")
	x.fill("textbox", "Password", "wrong")
	x.click("button", "Log in")
	x.wait("User or password is wrong.")
	x.accessible(axe(t), "the form of the login")
}
