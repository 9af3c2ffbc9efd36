package dashboard

import (
	"fmt"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// ack leases messages of a queue and acks them.
func (b *broker) ack(n int, queue string) {
	b.t.Helper()
	leased, _ := b.do("FILA.LEASE", queue, "COUNT", itoa(n)).([]any)
	if len(leased) != n {
		b.t.Fatalf("leased %d messages of %s, want %d", len(leased), queue, n)
	}
	for _, m := range leased {
		message, _ := m.([]any)
		b.do("FILA.ACK", queue, client.Text(message[0]))
	}
}

// A group is opened, its bar grows, it is sealed, and its page leads to the message that its end has enqueued.
func TestAGroupIsFollowedInTheDashboard(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "pages")
	b.do("FILA.QUEUE", "CREATE", "reports")
	x := open(t, browse(t), b.url, "#/")
	x.drawn()
	x.click("link", "Groups")
	x.wait("No group is waiting.")
	x.click("button", "Open a group")
	x.fill("textbox", "Name", "import-7")
	x.fill("textbox", "Queue of its message", "reports")
	x.fill("textbox", "Payload", "summary")
	x.fill("spinbutton", "Cancel it after, ms", "3600000")
	x.wait("FILA.GROUP OPEN import-7 reports summary EXPIRE 3600000")
	x.click("button", "Open")
	x.wait("The group is open.")
	x.wait("no members")

	b.enqueue(4, "pages", "page", "GROUP", "import-7")
	x.wait("0 of 4")
	b.ack(1, "pages")
	x.wait("1 of 4")
	x.find("image", "1 of 4 members done")
	x.click("button", "Seal import-7")
	x.wait("FILA.GROUP SEAL import-7")
	x.click("button", "Seal")
	x.wait("The group is sealed: 3 members pending.")
	x.click("link", "import-7")
	x.wait("It takes no more members, and waits for 3 of them.")
	x.wait("not enqueued")
	b.ack(3, "pages")
	x.wait("All members have ended, and its message was enqueued.")
	id := b.do("FILA.GROUP", "GET", "import-7").(client.Map).Text("message")
	x.click("link", id)
	x.wait("fila-group-done")
	x.wait("summary")
	x.click("link", "import-7")
	x.wait("All members have ended")

	// A group that has ended is not listed, and is found by its name.
	x.click("link", "Groups")
	x.wait("No group is waiting.")
	x.fill("searchbox", "Filter by name", "import-7")
	x.wait("Groups that have ended are not listed")
	x.click("link", "look for import-7 among them")
	x.wait("All members have ended")
	x.visit("#/groups/nosuch")
	x.wait("No group of this name is known.")
	x.wantQuiet()
}

// A member leads to its group, which is cancelled once its name is typed.
func TestAGroupIsCancelledInTheDashboard(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "pages", "MAXATTEMPTS", "1")
	b.do("FILA.GROUP", "OPEN", "import-8", "pages", "summary", "WHEN", "DONE")
	b.enqueue(2, "pages", "page", "GROUP", "import-8")
	x := open(t, browse(t), b.url, "#/queues/pages/messages/"+firstID(b, "pages"))
	x.click("link", "import-8")
	x.wait("It takes members.")
	x.click("button", "Cancel")
	x.wait("Of 2 pending members those that are not leased are removed")
	x.wait("FILA.GROUP CANCEL import-8")
	x.fill("textbox", "Type import-8 to confirm", "import-8")
	x.click("button", "Cancel the group")
	x.wait("The group is cancelled.")
	x.wait("No member of it is delivered any more, and its message was not enqueued.")
	if state := b.do("FILA.GROUP", "GET", "import-8").(client.Map).Text("state"); state != "cancelled" {
		t.Errorf("the state is %s", state)
	}

	// Dead members keep a group waiting that counts acks alone.
	b.do("FILA.GROUP", "OPEN", "import-9", "pages", "summary", "WHEN", "DONE")
	b.die(1, "pages", func(int) string { return "broken" }, "GROUP", "import-9")
	b.do("FILA.GROUP", "SEAL", "import-9")
	x.visit("#/groups/import-9")
	x.wait("Its dead members keep it waiting")
	b.do("FILA.QUEUE", "DELETE", "pages", "FORCE")
	b.do("FILA.PURGE", "pages.dlq")
	x.wait(`there is no queue "pages"`)
	x.wantQuiet()
}

// Groups are filtered and paged, and a user that may only look can do nothing with them.
func TestGroupsArePagedAndOnlyShownToViewers(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	b.do("FILA.QUEUE", "CREATE", "pages")
	for i := range 150 {
		b.do("FILA.GROUP", "OPEN", fmt.Sprintf("import-%03d", i), "pages", "summary")
	}
	x := open(t, browse(t), b.url, "#/")
	x.login("viewer", "reweiv")
	x.visit("#/groups")
	x.wait("import-000")
	x.wait("import-099")
	x.gone("import-100")
	x.click("button", "Next page")
	x.wait("import-149")
	x.gone("import-000")
	x.fill("searchbox", "Filter by name", "import-01?")
	x.wait("import-019")
	x.gone("import-020")
	for _, hash := range []string{"#/groups", "#/groups/import-007"} {
		x.visit(hash)
		x.drawn()
		reasons, enabled := x.disabled()
		if len(enabled) > 0 || reasons["Seal"] != "needs the right +fila.group|seal" || reasons["Cancel"] != "needs the right +fila.group|cancel" {
			t.Errorf("%s: disabled are %q, enabled %q", hash, reasons, enabled)
		}
	}
	x.wantQuiet()
}
