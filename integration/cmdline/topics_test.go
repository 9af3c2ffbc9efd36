package cmdline_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
)

func TestQueuesAreBoundToTopicsAndPublishedTo(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	for _, name := range []string{"billing", "shipping", "audit"} {
		b.do("FILA.QUEUE", "CREATE", name)
	}
	b.want(0, "no topics", "", "fila topics list -o table")
	b.want(3, "", "no queue is bound to order.placed", "fila topics show order.placed")
	b.want(3, "", "billing is not bound to order.placed", "fila topics unbind order.placed billing -y")
	b.want(0, "", "", "fila topics bind order.placed billing")
	b.want(0, "bound shipping to order.placed", "", "fila topics bind order.placed shipping --header kind=goods --header 'country=d?' -o table")
	b.want(0, "1\n", "", "fila topics bind order.placed audit --header kind=x -o json")
	b.want(0, "0\n", "", "fila topics bind order.placed audit --header 'kind=a=b' -o json")
	b.want(0, "audit\tkind=a=b\nbilling\t\nshipping\tkind=goods country=d?\n", "", "fila topics show order.placed")
	b.want(0, "QUEUE     HEADERS\naudit     kind=a=b\nbilling   -\n", "", "fila topics show order.placed -o table")
	b.want(0, `{"queue":"shipping","headers":["kind","goods","country","d?"]}],"published":0,"unmatched":0}`, "", "fila topics show order.placed -o jsonl")
	b.want(0, "audit\nbilling\nshipping\n", "", "fila topics unbind order.placed audit --yes; fila topics bind order.placed audit; fila topics show order.placed | cut -f 1")
	b.want(2, "", "this cannot be undone: give --yes", "fila topics unbind order.placed audit")
	b.want(0, "unbound audit from order.placed", "", "fila topics unbind order.placed audit -y -o table")
	b.completes("order.placed\n", "fila __complete topics show ''")
	b.completes("billing\n", "fila __complete topics bind order.placed ''")

	out := strings.Split(b.want(0, "", "", "fila publish order.placed one --key k --header kind=goods --header country=de"), "\n")
	id := strings.TrimPrefix(out[0], "billing\t")
	if len(out) != 3 || !strings.HasPrefix(out[1], "shipping\t") {
		t.Fatalf("%q", out)
	}
	if m, _ := b.do("FILA.GET", "billing", id).(client.Map); m.Text("payload") != "one" || m.Text("key") != "k" {
		t.Errorf("stored is %v", m)
	}
	b.want(0, "QUEUE    ID\nbilling  0", "", "fila publish order.placed one -o table")
	b.want(3, "", "no queue is bound to nosuch, so nothing was stored", "fila publish nosuch one -o table")
	b.want(3, "[]\n", "no queue is bound to nosuch", "fila publish nosuch one -o json")
	b.want(0, "order.placed\t2\t2\t0\n", "", "fila topics list --match 'order*'")
	b.want(3, "", "NOQUEUE", "fila topics bind order.placed nosuch")
	b.want(1, "", "has a [ without its ]", "fila topics bind order.placed billing --header 'kind=[a'")
	b.want(2, "", "--header must be name=value", "fila topics bind order.placed billing --header kind")
	b.want(2, "", "takes TOPIC QUEUE, as in", "fila topics bind order.placed")
	b.want(2, "", "give the payload", "fila publish order.placed")
	b.want(2, "", "takes TOPIC [PAYLOAD], as in", "fila publish")
	b.want(2, "", `--lines takes the payloads from standard input, and "x" is one`, "fila publish order.placed x --lines")
}

func TestPayloadsToPublishComeFromStandardInput(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "a")
	b.do("FILA.QUEUE", "CREATE", "b", "MAXDEPTH", "4")
	b.do("FILA.TOPIC", "BIND", "t", "a")
	b.do("FILA.TOPIC", "BIND", "t", "b", "HEADER", "kind", "x")
	payloads := func(queue string) string {
		var got []string
		for _, item := range b.do("FILA.BROWSE", queue).([]any)[1].([]any) {
			got = append(got, item.(client.Map).Text("payload"))
		}
		return strings.Join(got, "|")
	}
	out := b.want(0, "", "", `printf 'two\nlines' | fila publish t -; printf 'a\n\nb' | fila publish t --lines --header kind=x`)
	if got := payloads("a"); got != "two\nlines|a||b" {
		t.Errorf("a has %q", got)
	}
	var shown []string
	for line := range strings.Lines(out) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		shown = append(shown, strings.Join(words[:len(words)-1], " "))
	}
	if got := strings.Join(shown, ","); got != "a,1 a,1 b,2 a,2 b,3 a,3 b" {
		t.Errorf("shown is %s", got)
	}

	// One queue is full after the next message. What is before the line that is refused is stored.
	out, stderr, code := b.typed(`seq 3 | fila publish t --lines --header kind=x -o jsonl`)
	if code != 1 || strings.Count(out, "\n") != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "line 2: MAXDEPTH") || !strings.Contains(stderr, `"b"`) {
		t.Errorf("exit code %d: %q, %q", code, out, stderr)
	}
	out, stderr, code = b.typed(`seq 3 | fila publish t --lines --header kind=x --best-effort -o json`)
	var list []map[string]any
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) != 3 || list[2]["line"] != 3.0 || list[2]["queue"] != "a" {
		t.Errorf("exit code %d, %v: %q, %q", code, err, out, stderr)
	}
	trace := b.want(0, "", "trace ", "fila publish t traced --trace")
	id := strings.TrimSpace(strings.TrimPrefix(trace, "a\t"))
	b.want(0, "traceparent", "", "fila get a "+id+" -o json")
}
