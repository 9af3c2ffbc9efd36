package dashboard

import (
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// The audit log shows the user, the address and the setting before and after of each change. Users without the right do not see the page.
func TestTheAuditLogIsShownToThoseWithTheRight(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	browser := browse(t)
	x := open(t, browser, b.url, "#/")
	x.login("admin", "nimda")
	x.drawn()
	x.click("link", "Audit log")
	x.wait("Nothing has been changed yet.")
	b.do("FILA.QUEUE", "CREATE", "orders", "MAXATTEMPTS", "4")
	b.do("FILA.QUEUE", "ALTER", "orders", "MAXATTEMPTS", "7")
	x.wait("FILA.QUEUE ALTER")
	x.until("the newest change is the first one, with its setting before and after", `() => [...document.querySelectorAll("tbody tr:first-child > *")].slice(1).map((c) => c.innerText).join("|").replace(/127\.0\.0\.1:\d+/, "from") === "admin|from|FILA.QUEUE ALTER|orders|max_attempts=4|max_attempts=7"`)
	x.shoot("audit-two")
	for i := range 120 {
		b.do("FILA.CONFIG", "SET", "n", itoa(i))
	}
	x.wait("n=119")
	x.click("button", "Next page")
	x.wait("FILA.QUEUE CREATE")
	x.gone("n=119")
	x.click("button", "First page")
	x.wait("n=119")

	y := open(t, browser, b.url, "#/")
	y.login("viewer", "reweiv")
	y.find("link", "Events")
	y.find("link", "Users")
	if _, err := y.look("link", "Audit log"); err == nil {
		t.Error("the menu of a user without the right leads to the audit log")
	}
	y.visit("#/audit")
	y.wait("You may not see the audit log.")
	y.wait("needs the right +fila.audit")
	x.wantQuiet()
	y.wantQuiet()
}
