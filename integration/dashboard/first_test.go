package dashboard

import (
	"regexp"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// emptyPages are the addresses of all pages that a broker without queues has.
func emptyPages() map[string]string {
	return map[string]string{
		"overview": "#/", "groups": "#/groups", "throttles": "#/throttles", "budgets": "#/budgets", "signals": "#/signals", "schedules": "#/crons", "events": "#/events?kind=all",
		"clients": "#/clients", "slowlog": "#/slowlog", "latency": "#/latency", "config": "#/config", "server": "#/config/server", "users": "#/users", "audit": "#/audit", "nodes": "#/nodes",
		"no queue": "#/queues/nothing", "no budget": "#/budgets/nothing", "no group": "#/groups/nothing", "no page": "#/nothing",
	}
}

// noValue is what a page says where it computes with something that is not there.
var noValue = regexp.MustCompile(`\b(NaN|undefined|Infinity|null|\[object)\b|-\d+ (ms|s|min)\b|\ball 0 |\b1 (queues|keys|messages|settings|clients|users|nodes|commands|budgets|throttles|groups|members)\b`)

// A broker on its first day: each page of one without queues, and of one whose only queue is empty and
// then has one message, is accessible, has room and says nothing that is no value. Each page leaves a
// picture of both themes, to be looked at.
func TestABrokerOnItsFirstDay(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	source := axe(t)
	x := open(t, browse(t), b.url, "#/")
	look := func(when string, pages map[string]string) {
		for name, hash := range pages {
			for _, scheme := range []string{"light", "dark"} {
				x.theme(scheme)
				x.size(1280, 900)
				x.visit(hash)
				x.drawn()
				x.accessible(source, when+", "+name+" "+scheme)
				x.shoot(when + "-" + name + "-" + scheme)
				x.wantQuiet()
			}
			x.plain(when + ", " + name)
			if found := noValue.FindString(x.text()); found != "" {
				t.Errorf("%s, %s says %q:\n%s", when, name, found, x.text())
			}
			x.size(1200, 800)
			x.fits(when + ", " + name)
			x.size(320, 800)
			x.drawn()
			x.narrow(when + ", " + name)
		}
	}
	look("empty", emptyPages())

	b.do("FILA.QUEUE", "CREATE", "orders", "NODLQ")
	pages := map[string]string{
		"overview": "#/", "keys": "#/queues/orders", "messages": "#/queues/orders/messages", "consumers": "#/queues/orders/consumers", "scripts": "#/queues/orders/scripts",
		"settings": "#/queues/orders/settings", "no key": "#/queues/orders/keys/nothing",
	}
	look("queue", pages)

	b.enqueue(1, "orders", "one")
	pages["message"] = "#/queues/orders/messages/" + firstID(b, "orders")
	delete(pages, "scripts")
	delete(pages, "settings")
	look("message", pages)
}
