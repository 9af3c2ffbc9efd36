package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
)

// hostile is a text that would run if any page took it for markup.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// What is stored by anyone is shown as text, on every page that shows it.
func TestStoredTextIsShownAsText(t *testing.T) {
	t.Parallel()
	name := hostile + `"'&amp;`
	b := start(t, [2]string{}, "--slowlog.slower_than_us", "1")
	b.do("FILA.QUEUE", "CREATE", name)
	b.do("ACL", "SETUSER", strings.ReplaceAll(name, " ", "_"), "on", "nopass", "~*", "&*", "+@all")
	b.do("FILA.THROTTLE", "SET", name, "RATE", "1", "CONCURRENCY", "1")
	b.do("FILA.BUDGET", "SET", name, "LOW", "5")
	b.do("FILA.BUDGET", "CREDIT", name, "10", "ID", name, "NOTE", name)
	b.do("FILA.CRON", "SET", name, name, "@hourly", name, "KEY", name)
	b.do("FILA.SIGNAL", "ADD", name, "x")
	b.do("FILA.CONFIG", "SET", name, name)
	b.do("FILA.SCRIPT", "LOAD", name, "ON_FAILURE", "-- "+name+"\nfunction on_failure(msg) error('"+strings.ReplaceAll(name, "'", `\'`)+"') end\n")
	c := b.dial("", "")
	if _, err := c.Do(t.Context(), "CLIENT", "SETNAME", strings.ReplaceAll(hostile, " ", "_")); err != nil {
		t.Fatal(err)
	}
	b.die(2, name, func(int) string { return name }, "KEY", name, "HEADER", name, name)
	b.enqueue(3, name, name, "KEY", name, "HEADER", name, name, "THROTTLE", name)
	lease, _ := b.do("FILA.LEASE", name, "CONSUMER", name).([]any)
	failed, _ := lease[0].([]any)
	b.do("FILA.NACK", name, client.Text(failed[0]), "ERROR", name)
	b.enqueue(1, name, "\xff\xfe<b>", "KEY", "\xff<b>", "HEADER", "\xfe", "\xff")
	b.do("FILA.LEASE", name, "CONSUMER", name)

	queue, dlq := url.PathEscape(name), url.PathEscape(name+".dlq")
	id := firstID(b, name)
	pages := map[string]string{
		"overview": "#/", "keys": "#/queues/" + queue, "key": "#/queues/" + queue + "/keys/" + queue,
		"messages": "#/queues/" + queue + "/messages", "message": "#/queues/" + queue + "/messages/" + id, "settings": "#/queues/" + dlq + "/settings",
		"dead": "#/queues/" + dlq + "/dead?error=" + url.QueryEscape(errorOf(b, name+".dlq")), "scripts": "#/queues/" + queue + "/scripts?hook=on_failure",
		"consumers": "#/queues/" + queue + "/consumers",
		"throttles": "#/throttles", "budgets": "#/budgets", "budget": "#/budgets/" + queue, "signals": "#/signals", "schedules": "#/crons",
		"clients": "#/clients", "slowlog": "#/slowlog", "config": "#/config", "users": "#/users?user=" + url.QueryEscape(strings.ReplaceAll(name, " ", "_")),
	}
	x := open(t, browse(t), b.url, "#/")
	for page, hash := range pages {
		x.visit(hash)
		x.drawn()
		x.until(page+" shows the text as it is", `() => [document.body.innerText, ...[...document.querySelectorAll("textarea")].map((t) => t.value)].some((text) => text.includes("onerror=") && text.includes("<img"))`)
		r, err := x.Eval(`() => document.title.includes("owned") && !document.title.includes("onerror") || document.querySelectorAll("img, script:not([src]), [onerror], b:not(.legend b)").length > 0`)
		if err != nil {
			t.Fatal(err)
		}
		if r.Value.Bool() {
			t.Errorf("%s: a text became markup", page)
		}
		x.wantQuiet()
	}
	x.visit("#/events?kind=all")
	x.wait("Live")
	b.enqueue(1, name, "x", "KEY", name)
	x.until("the event shows the text as it is", `() => document.querySelector("tbody")?.innerText.includes("onerror=")`)
	x.wantQuiet()
	// The dialogs of actions show names, too, and the lines that they would send.
	x.visit("#/queues/" + queue)
	x.drawn()
	x.click("button", "Purge")
	x.wait("FILA.PURGE")
	x.wait("Type " + name + " to confirm")
	x.wantQuiet()
}

// errorOf returns the error of the first group of a dead-letter queue.
func errorOf(b *broker, dlq string) string {
	b.t.Helper()
	page, _ := b.do("FILA.BROWSE", dlq, "COUNT", "100", "GROUP", "ERROR").([]any)
	for _, g := range client.Maps(page[1]) {
		return g.Text("error")
	}
	b.t.Fatalf("%s has no groups", dlq)
	return ""
}

// Names that are not UTF-8 are shown, and lead to what they name.
func TestNamesThatAreNoTextLeadToWhatTheyName(t *testing.T) {
	t.Parallel()
	b := start(t, [2]string{})
	name := "bytes\xff\"q"
	b.do("FILA.QUEUE", "CREATE", name, "NODLQ")
	b.enqueue(1, name, "\xff\x00payload", "KEY", "key\xfe")
	x := open(t, browse(t), b.url, "#/")
	x.drawn()
	x.click("link", `bytes\xff"q`)
	x.wait(`key\xfe`)
	x.click("link", `key\xfe`)
	x.wait(`Key key\xfe`)
	x.click("button", "Pause key")
	x.wait(`FILA.KEY PAUSE "bytes\xff\"q" "key\xfe"`)
	x.click("button", "Pause key")
	x.wait("is paused.")
	if got := client.Text(b.do("FILA.KEY", "GET", name, "key\xfe").(client.Map).Get("paused")); got != "1" {
		t.Errorf("paused is %q", got)
	}
}
