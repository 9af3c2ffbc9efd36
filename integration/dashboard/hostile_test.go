package dashboard

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// hostile is a text that would run if any page took it for markup.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// What is stored by anyone is shown as text, on every page that shows it.
func TestStoredTextIsShownAsText(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	name := hostile + `"'&amp;`
	backups := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", ""))
	b := start(t, [2]string{}, "--slowlog.slower_than_us", "1", "--storage.backup_path", backups)
	b.do("FILA.QUEUE", "CREATE", name)
	b.do("ACL", "SETUSER", strings.ReplaceAll(name, " ", "_"), "on", "nopass", "~*", "&*", "+@all")
	b.do("FILA.THROTTLE", "SET", name, "RATE", "1", "CONCURRENCY", "1")
	b.do("FILA.BUDGET", "SET", name, "LOW", "5")
	b.do("FILA.BUDGET", "CREDIT", name, "10", "ID", name, "NOTE", name)
	b.do("FILA.CRON", "SET", name, name, "@hourly", name, "KEY", name)
	b.do("FILA.SIGNAL", "ADD", name, "x")
	b.do("FILA.TOPIC", "BIND", name, name, "HEADER", name, name)
	b.do("FILA.CONFIG", "SET", name, name)
	b.do("FILA.GROUP", "OPEN", name, name, name)
	b.do("FILA.SCRIPT", "LOAD", name, "ON_FAILURE", "-- "+name+"\nfunction on_failure(msg) error('"+strings.ReplaceAll(name, "'", `\'`)+"') end\n")
	c := b.dial("", "")
	if _, err := c.Do(t.Context(), "CLIENT", "SETNAME", strings.ReplaceAll(hostile, " ", "_")); err != nil {
		t.Fatal(err)
	}
	b.die(2, name, func(int) string { return name }, "KEY", name, "HEADER", name, name)
	b.enqueue(3, name, name, "KEY", name, "HEADER", name, name, "THROTTLE", name, "GROUP", name)
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
		"topics":    "#/topics", "topic": "#/topics/" + queue, "subscriptions": "#/queues/" + queue + "/topics",
		"groups": "#/groups", "group": "#/groups/" + queue, "audit": "#/audit",
		"throttles": "#/throttles", "budgets": "#/budgets", "budget": "#/budgets/" + queue, "signals": "#/signals", "schedules": "#/crons",
		"clients": "#/clients", "slowlog": "#/slowlog", "config": "#/config", "server": "#/config/server", "users": "#/users?user=" + url.QueryEscape(strings.ReplaceAll(name, " ", "_")),
	}
	x := open(t, browse(t), b.url, "#/")
	for page, hash := range pages {
		x.visit(hash)
		x.drawn()
		x.until(page+" shows the text as it is", `() => [document.body.innerText, ...[...document.querySelectorAll("textarea")].map((t) => t.value)].some((text) => text.includes("onerror=") && text.includes("<img"))`)
		x.wantNoMarkup(page)
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

// wantNoMarkup fails if a text has become markup, or has run.
func (x *tab) wantNoMarkup(page string) {
	x.t.Helper()
	r, err := x.Eval(`() => document.title.includes("owned") && !document.title.includes("onerror") || document.querySelectorAll("img, script:not([src]), [onerror], b:not(.legend b)").length > 0`)
	if err != nil {
		x.t.Fatal(err)
	}
	if r.Value.Bool() {
		x.t.Errorf("%s: a text became markup", page)
	}
}

// What a node says of itself and of others is shown as text too, whatever it says: it may have been
// taken over, or be of another version.
func TestWhatNodesSayIsShownAsText(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	node := func(role, state string) map[string]any {
		return map[string]any{
			"id": hostile + role, "role": role, "state": state, "trouble": hostile, "version": hostile, "client": hostile, "address": hostile,
			"behind": 1, "behind_ms": 1, "last_contact_ms": 1, "applied": 1, "free_bytes": 1, "log_bytes": 1, "clock_skew_ms": 1000,
		}
	}
	x := open(t, browse(t), answering(t, b.url, map[string]any{
		"INFO replication":    "node:" + hostile + "\r\nleader:" + hostile + "leader\r\ncluster_name:" + hostile + "\r\nrole:slave\r\nmaster_link_status:up\r\nmaster_host:" + hostile + "\r\nmaster_port:1\r\n",
		"FILA.CLUSTER STATUS": []any{node("leader", "online"), node("voter", hostile)},
		"FILA.CLUSTER VERIFY": []any{map[string]any{"id": hostile, "result": hostile, "records": 1, "digest": hostile, "reason": hostile}},
		"LATENCY LATEST":      []any{[]any{hostile, 1_800_000_000, 5, 7}},
		"LATENCY HISTORY":     []any{[]any{1_799_999_990, 5}, []any{1_800_000_000, 7}},
		"LATENCY DOCTOR":      hostile,
		"LATENCY HISTOGRAM":   map[string]any{hostile: map[string]any{"calls": 1, "histogram_usec": map[string]any{hostile: 1}}},
		"CONFIG GET":          map[string]any{hostile: hostile},
	}), "#/")
	// How often each page has the text, at least: a node has it in five cells, four of them twice.
	for hash, times := range map[string]int{"#/nodes": 12, "#/latency": 4, "#/config/server": 2, "#/": 3, "#/clients": 2} {
		x.visit(hash)
		x.drawn()
		x.until(hash+" shows the text as it is", `(times) => document.body.innerText.split("<img src=x onerror=").length > times`, times)
		x.wantNoMarkup(hash)
		x.wantQuiet()
	}
	x.visit("#/nodes")
	x.drawn()
	x.click("button", "Hand over")
	x.wait("FILA.CLUSTER TRANSFER")
	x.choose("To", hostile+"voter")
	x.wait("FILA.CLUSTER TRANSFER \"" + strings.ReplaceAll(hostile+"voter", `"`, `\"`))
	x.click("button", "Cancel")
	x.click("button", "Remove the node "+hostile+"voter")
	x.wait("Type " + hostile + "voter to confirm")
	x.click("button", "Cancel")
	x.click("button", "Compare stores")
	x.wait("FILA.CLUSTER VERIFY")
	x.click("button", "Compare")
	x.until("the comparison shows the text as it is", `(times) => [...document.querySelectorAll("table")].at(-1).innerText.split("<img src=x onerror=").length > times`, 3)
	x.wantNoMarkup("nodes")
}

// answering returns the address of a dashboard whose broker answers commands, by their first two words,
// with what a test says, and the others itself.
func answering(t *testing.T, broker string, says map[string]any) string {
	t.Helper()
	to, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to) // with its host: the listener takes no other name
		r.Out.Header.Del("Origin")
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the browser has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var words []string
		if json.Unmarshal(body, &words) == nil && len(words) > 1 {
			if reply, ok := says[words[0]+" "+words[1]]; ok {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(reply) // else the browser has gone
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
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
	testkit.AtLength(t)
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
