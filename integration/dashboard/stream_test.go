package dashboard

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// streams counts the connections of streams and requests under way.
func (b *broker) streams() int {
	b.t.Helper()
	return strings.Count(client.Text(b.do("CLIENT", "LIST")), "name=fila-admin")
}

// A page has one stream, which ends while its tab is hidden and comes back with it. Figures go on
// after the broker was away.
func TestAPageHasOneStreamAndNoneWhileItIsHidden(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	shop(b)
	x := open(t, browse(t), b.url, "#/queues/orders")
	x.wait("Live")
	testkit.Eventually(t, "there is one stream", func() bool { return b.streams() == 1 })
	hide := func(hidden bool) {
		if _, err := x.Eval(`(hidden) => { Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden }); document.dispatchEvent(new Event("visibilitychange")); }`, hidden); err != nil {
			t.Fatal(err)
		}
	}
	hide(true)
	x.wait("Stopped while hidden")
	testkit.Eventually(t, "there is none", func() bool { return b.streams() == 0 })
	b.do("FILA.PURGE", "orders")
	hide(false)
	x.wait("Live")
	x.wait("No key has messages.")
	testkit.Eventually(t, "there is one again", func() bool { return b.streams() == 1 })
	x.visit("#/throttles")
	x.drawn()
	testkit.Eventually(t, "a page without live figures has none", func() bool { return b.streams() == 0 })

	x.visit("#/queues/orders")
	x.wait("Live")
	b.do("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")
	b.do("FILA.QUEUE", "PAUSE", "orders", "OUT")
	x.wait("paused")
	x.wait("Live")
}

// What the page takes a user to be allowed to is what the broker says, for patterns of all kinds.
func TestThePageReadsPatternsOfQueuesAsTheBroker(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	patterns := []string{"~jobs*", "%R~jobs*", "%W~jobs*", "~jobs:[0-9]", "~jobs:[^0-9]", "~j?bs:1", `~jobs\*`, "%RW~*:1 %R~jobs*", "~[a-j]*", "~jobs:[]", "~*"}
	queues := []string{"jobs", "jobs:1", "jobs:x", "jobs*", "mails"}
	var users []string
	for i, p := range patterns {
		users = append(users, fmt.Sprintf("user u%d on nopass %s &* +@all\n", i, p))
	}
	b := start(t, admin(), withUsers(t, users...)...)
	for _, q := range queues {
		b.do("FILA.QUEUE", "CREATE", q, "NODLQ")
	}
	commands := map[string][]string{"Pause": {"FILA.QUEUE", "PAUSE"}, "Purge": {"FILA.PURGE"}, "Enqueue": {"FILA.ENQUEUE"}}
	browser, allowed, refused := browse(t), 0, 0
	for i, p := range patterns {
		x := open(t, browser, b.url, "#/")
		x.login(fmt.Sprintf("u%d", i), "any")
		for _, q := range queues {
			look := client.Text(b.do("ACL", "DRYRUN", fmt.Sprintf("u%d", i), "FILA.FIGURES", "QUEUE", q)) == "OK"
			x.visit("#/queues/" + url.PathEscape(q))
			if !look {
				x.wait("You may not see this queue.")
				refused++
				continue
			}
			x.drawn()
			x.find("button", "Purge")
			reasons, _ := x.disabled()
			for label, words := range commands {
				words = append(append([]string{"ACL", "DRYRUN", fmt.Sprintf("u%d", i)}, words...), q)
				if label == "Enqueue" {
					words = append(words, "x")
				}
				may := client.Text(b.do(words...)) == "OK"
				if may {
					allowed++
				} else {
					refused++
				}
				if why := reasons[label]; (why == "") != may {
					t.Errorf("with %s, %s of %s is disabled because %q, and the broker says %t", p, label, q, why, may)
				}
			}
		}
	}
	if allowed < 20 || refused < 20 {
		t.Errorf("%d were allowed, %d refused", allowed, refused)
	}
}
