package dashboard

import (
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// A pattern is made, the throttle of a tenant is found, held and let go again, and gets limits of its own.
func TestPatternsAndHoldsOfTheDashboard(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "jobs")
	x := open(t, browse(t), b.url, "#/throttles")
	x.drawn()
	x.click("button", "New throttle")
	x.fill("textbox", "Name", "tenant:*")
	x.fill("spinbutton", "Leases at the same time", "2")
	x.wait("FILA.THROTTLE SET tenant:* CONCURRENCY 2")
	x.click("button", "Set")
	x.wait("pattern, 0 throttles")
	b.do("FILA.ENQUEUE", "jobs", "x", "KEY", "acme", "THROTTLE", "tenant:acme")
	x.wait("pattern, 1 throttle")
	x.click("link", "1 throttle")
	x.wait("of tenant:*")

	x.click("button", "Hold the throttle tenant:acme")
	x.fill("spinbutton", "For, ms", "90000")
	x.wait("FILA.THROTTLE HOLD tenant:acme 90000")
	x.click("button", "Hold")
	x.wait("The throttle is held.")
	x.wait(" left")
	x.shoot("throttles-held")
	if state := b.do("FILA.EXPLAIN", "jobs", "KEY", "acme").(client.Map).Text("state"); state != "held" {
		t.Errorf("the state is %s", state)
	}
	x.click("button", "End the hold of tenant:acme")
	x.wait("FILA.THROTTLE HOLD tenant:acme 0")
	x.click("button", "End the hold")
	x.wait("The hold has ended.")
	x.gone(" left")

	x.click("button", "Change tenant:acme")
	x.fill("spinbutton", "Leases at the same time", "5")
	x.wait("FILA.THROTTLE SET tenant:acme CONCURRENCY 5")
	x.click("button", "Set")
	x.gone("of tenant:*")
	if n := b.do("FILA.THROTTLE", "GET", "tenant:acme").(client.Map).Int("concurrency"); n != 5 {
		t.Errorf("its concurrency is %d", n)
	}
}
