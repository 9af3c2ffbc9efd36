package dashboard

import (
	"fmt"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// A schedule shows what it enqueues, is edited, which leaves what the dialog has no field for, and is paused and resumed.
func TestASchedulesPage(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "reports")
	b.do("FILA.CRON", "SET", "morning", "reports", "30 6 * * mon-fri", `{"kind": "daily", "page": 17}`, "TZ", "Europe/Berlin", "CATCHUP", "NONE",
		"KEY", "acme", "PRIORITY", "7", "COST", "3", "THROTTLE", "mail", "HEADER", "kind", "report", "TTL", "60000", "MAXATTEMPTS", "2")
	before := b.do("FILA.CRON", "GET", "morning", "CONTENT").(client.Map)
	x := open(t, browse(t), b.url, "#/crons")
	x.click("link", "morning")
	x.wait(`"daily"`)
	x.wait("priority 7")
	x.shoot("schedule-page")
	x.onBoth(axe(t), "the page of a schedule")
	x.size(1280, 900)
	x.plain("the page of a schedule")

	x.click("button", "Edit")
	x.fill("textbox", "Expression", "45 7 * * *")
	x.wait(`COST 3 THROTTLE mail MAXATTEMPTS 2 PRIORITY 7 TTL 60000 HEADER kind report`)
	x.click("button", "Set")
	x.wait("The schedule is set.")
	x.wait("45 7 * * *")
	after := b.do("FILA.CRON", "GET", "morning", "CONTENT").(client.Map)
	for _, name := range []string{"queue", "tz", "catchup", "key", "priority", "cost", "weight", "throttle", "headers", "ttl_ms", "delay_ms", "max_attempts", "budgets", "unique", "payload", "fired"} {
		if was, is := fmt.Sprint(before.Get(name)), fmt.Sprint(after.Get(name)); was != is {
			t.Errorf("the edit has changed %s from %s to %s", name, was, is)
		}
	}
	if e := after.Text("expression"); e != "45 7 * * *" {
		t.Errorf("the expression is %s", e)
	}

	x.click("button", "Pause")
	x.wait("FILA.CRON PAUSE morning")
	x.click("button", "Pause")
	x.wait("The schedule is paused.")
	x.wait("paused just now")
	if m := b.do("FILA.CRON", "GET", "morning").(client.Map); m.Get("paused_at") == nil {
		t.Errorf("it is not paused: %v", m)
	}
	x.click("link", "Schedules")
	x.click("button", "Resume morning")
	x.wait("FILA.CRON RESUME morning")
	x.click("button", "Resume")
	x.wait("The schedule goes on.")
	if m := b.do("FILA.CRON", "GET", "morning").(client.Map); m.Get("paused_at") != nil || m.Get("next_at") == nil {
		t.Errorf("it does not go on: %v", m)
	}
}
