package dashboard

import (
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// lease leases the next message of a queue as a consumer and returns its receipt.
func (b *broker) lease(queue, consumer string, options ...string) string {
	b.t.Helper()
	leased, _ := b.do(append([]string{"FILA.LEASE", queue, "BLOCK", "60000", "CONSUMER", consumer}, options...)...).([]any)
	if len(leased) != 1 {
		b.t.Fatalf("leased %v", leased)
	}
	message, _ := leased[0].([]any)
	return client.Text(message[0])
}

// steps waits until the time line has these steps.
func (x *tab) steps(want ...string) {
	x.t.Helper()
	x.until("the time line is "+strings.Join(want, ", "), `(want) => [...document.querySelectorAll(".timeline .badge")].map((b) => b.innerText).join() === want`, strings.Join(want, ","))
}

// The page of a message follows it: a delay, attempts that fail and expire, progress, death, a redrive, the ack with its result.
func TestTheTimeLineOfAMessage(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "jobs", "MAXATTEMPTS", "3", "BACKOFF", "1", "KEEPDONE", "3600000")
	id := client.Text(b.do("FILA.ENQUEUE", "jobs", `{"page": 7}`, "KEY", "acme", "DELAY", "3600000"))
	x := open(t, browse(t), b.url, "#/queues/jobs/messages/"+id)
	x.steps("Enqueued", "Delayed until")
	b.do("FILA.RESCHEDULE", "jobs", id, "0")
	x.steps("Enqueued", "Ready")
	receipt := b.lease("jobs", "worker-1")
	x.steps("Enqueued", "Leased")
	x.wait("consumer worker-1, until")
	b.do("FILA.EXTEND", "jobs", receipt, "60000", "PROGRESS", "page 3 of 9")
	x.wait("page 3 of 9")
	b.do("FILA.NACK", "jobs", receipt, "ERROR", "no network")
	x.steps("Enqueued", "Attempt 1 failed", "Attempt 2 ready")
	x.wait("consumer worker-1, after")
	x.wait("no network")
	b.lease("jobs", "worker-2", "VISIBILITY", "50")
	x.steps("Enqueued", "Attempt 1 failed", "Attempt 2 expired", "Attempt 3 ready")
	b.do("FILA.NACK", "jobs", b.lease("jobs", "worker-3"), "ERROR", "no network either")
	x.wait("There is no such message here any more.")

	x.visit("#/queues/jobs.dlq/messages/" + id)
	x.steps("Enqueued", "Attempt 1 failed", "Attempt 2 expired", "Attempt 3 failed", "Died")
	x.wait("in jobs: attempts")
	for _, scheme := range []string{"light", "dark"} {
		x.theme(scheme)
		x.size(1280, 900)
		x.accessible(axe(t), "the time line "+scheme)
		x.shoot("timeline-" + scheme)
		x.size(390, 800)
		x.narrow("the time line")
		x.shoot("timeline-390-" + scheme)
	}
	b.do("FILA.REDRIVE", "jobs.dlq")
	x.visit("#/queues/jobs/messages/" + id)
	b.do("FILA.NACK", "jobs", b.lease("jobs", "worker-4"), "ERROR", "disk full")
	x.steps("Enqueued", "Attempt 1 failed", "Attempt 2 expired", "Attempt 3 failed", "Redriven", "Attempt 1 failed", "Attempt 2 ready")
	b.do("FILA.ACK", "jobs", b.lease("jobs", "worker-5"), "RESULT", "seven pages")
	x.wait("seven pages")
	x.wait("consumer worker-5")
	x.steps("Enqueued", "First leased", "1 attempt failed", "Acked")
	x.shoot("timeline-done")
	x.wantQuiet()
}

// Of many attempts the last ten are known, and a message says that there were others.
func TestTheTimeLineSaysThatAttemptsAreNoLongerKnown(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "jobs", "MAXATTEMPTS", "0", "BACKOFF", "0")
	id := client.Text(b.do("FILA.ENQUEUE", "jobs", "x"))
	for range 12 {
		b.do("FILA.NACK", "jobs", b.lease("jobs", "w"), "ERROR", "broken")
	}
	x := open(t, browse(t), b.url, "#/queues/jobs/messages/"+id)
	x.wait("2 earlier attempts")
	x.wait("no longer known")
	x.wait("Attempt 12 failed")
	x.wantQuiet()
}
