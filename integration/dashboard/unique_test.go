package dashboard

import (
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// A schedule has one message at a time, a message shows its id, and a redrive says which messages it
// leaves because another has the id.
func TestUniqueIdsAreShown(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "jobs")
	x := open(t, browse(t), b.url, "#/crons")
	x.drawn()
	x.click("button", "New schedule")
	x.fill("textbox", "Name", "index")
	x.fill("textbox", "Queue", "jobs")
	x.fill("textbox", "Expression", "@every 1s")
	x.fill("textbox", "Payload", "all")
	x.fill("textbox", "Unique id", "re-index")
	x.wait("UNIQUE re-index")
	x.click("button", "Set")
	x.wait("The schedule is set.")
	x.wait("unique id re-index")
	x.wait("skipped")

	leased, _ := b.do("FILA.LEASE", "jobs").([]any)
	if len(leased) != 1 {
		t.Fatalf("leased %v", leased)
	}
	message, _ := leased[0].([]any)
	receipt := client.Text(message[0])
	id, _, _ := strings.Cut(receipt, ":")
	x.visit("#/queues/jobs/messages/" + id)
	x.wait("Unique id")
	x.wait("re-index")
	b.do("FILA.CRON", "DEL", "index")
	b.do("FILA.NACK", "jobs", receipt, "DEAD", "ERROR", "broken")
	b.do("FILA.ENQUEUE", "jobs", "again", "UNIQUE", "re-index")
	b.do("FILA.REDRIVE", "jobs.dlq")
	x.visit("#/queues/jobs.dlq/dead")
	x.wait("(the unique id of 1 is taken)")
	x.wantQuiet()
}
