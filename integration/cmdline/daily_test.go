package cmdline_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
)

func TestEachFormHasTheSameFields(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.ENQUEUE", "orders", "hello", "KEY", "tenant-7")
	var list []map[string]any
	if err := json.Unmarshal([]byte(b.want(0, "", "", "fila queues list --all -o json")), &list); err != nil || len(list) != 2 || list[0]["name"] != "orders" || list[0]["ready"] != 1.0 {
		t.Errorf("%v, %v", list, err)
	}
	lines := strings.Split(strings.TrimSpace(b.want(0, "", "", "fila queues list --all -o jsonl")), "\n")
	var first map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || len(lines) != 2 || len(first) != len(list[0]) {
		t.Errorf("%q, %v", lines, err)
	}
	b.want(0, "orders\t1\t0\t0\t0\t1\t0\t0\t0\torders.dlq\tno_consumer\t[\"no_consumer\"]\tno consumer holds a lease of the queue, waits, or has asked within a minute\n", "", "fila queues list")
	b.want(0, "NAME    READY", "", "fila queues list -o table")
	b.want(0, "no such queues", "", "fila queues list --match nosuch -o table")
	b.want(0, "", "", "fila queues list --match nosuch")
	b.want(0, "[]\n", "", "fila queues list --match nosuch -o json")
	b.want(2, "", "--output must be one of table, plain, json, jsonl", "fila queues list -o xml")
}

func TestExitCodesTellWhatIsMissing(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	for line, stderr := range map[string]string{
		"fila queues show nosuch":                                        "NOQUEUE",
		"fila get orders 019b7748-d600-7000-8000-02d1a3a5b0c1":           "orders has no message 019b7748",
		"fila cancel orders 019b7748-d600-7000-8000-02d1a3a5b0c1":        "orders has no message",
		"fila reschedule orders 019b7748-d600-7000-8000-02d1a3a5b0c1 0s": "NOMSG",
		"fila throttles show nosuch":                                     "no throttle is named nosuch",
		"fila crons delete nosuch --yes":                                 "no recurring message is named nosuch",
		"fila users show nosuch":                                         "no user is named nosuch",
		"fila vars get nosuch":                                           "no value is named nosuch",
		"fila scripts show orders on_enqueue":                            "orders has no on_enqueue",
		"fila clients kill 99999":                                        "no client has the id 99999",
		"fila peek nosuch -o json":                                       "NOQUEUE",
		"fila keys show orders nosuch":                                   "orders has no key nosuch",
		"fila keys purge orders nosuch --yes":                            "orders has no messages of nosuch",
		"fila explain orders --key nosuch":                               "orders has no key nosuch",
		"fila signals show nosuch":                                       "nosuch has no such signals",
		"fila crons run nosuch":                                          "no recurring message is named nosuch",
		"fila throttles release nosuch":                                  "nosuch is not held",
		"fila scripts history orders on_enqueue":                         "orders never had on_enqueue",
		"fila scripts rollback orders on_enqueue 1":                      "the history of on_enqueue of orders has no version 1",
		"fila groups show nosuch":                                        "no group is named nosuch",
		"fila groups seal nosuch":                                        "NOGROUP",
	} {
		b.want(3, "", stderr, line)
	}
	b.want(1, "", "QUEUEEXISTS", "fila queues create orders")
	b.want(2, "", "this cannot be undone: give --yes", "fila queues purge orders")
	b.want(2, "", "takes QUEUE, as in", "fila queues show")
	b.want(2, "", "takes QUEUE, as in", "fila queues show a b")
	b.want(2, "", `has no command "frobnicate"`, "fila queues frobnicate")
	b.want(2, "", "--delay must be a duration such as 90s", "fila enqueue orders x --delay 90")
	b.want(2, "", "--header must be name=value", "fila enqueue orders x --header oops")
	b.want(2, "", "give the payload", "fila enqueue orders")
	b.want(2, "", "takes an id or --key", "fila explain orders")
	b.want(2, "", "does not end", "fila call monitor")
}

func TestPayloadsComeFromArgumentsAndStandardInput(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "q")
	b.want(0, "", "", "fila enqueue q one; printf 'two\\nlines' | fila enqueue q -; printf 'a\\n\\nb' | fila enqueue q --lines --key k --priority 9")
	for key, want := range map[string]string{"default": "one|two\nlines", "k": "a||b"} {
		var got []string
		for _, item := range b.do("FILA.BROWSE", "q", "KEY", key).([]any)[1].([]any) {
			got = append(got, item.(client.Map).Text("payload"))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q, want %q", key, strings.Join(got, "|"), want)
		}
	}
	id := strings.TrimSpace(b.want(0, "", "", `printf '\xff\x00\n' | fila enqueue q -`))
	if out := b.want(0, "", "", "fila get q "+id+" --payload"); out != "\xff\x00\n" {
		t.Errorf("%q", out)
	}
	b.want(0, `"payload":{"base64":"/wAK"}`, "", "fila get q "+id+" -o jsonl")
	b.do("FILA.QUEUE", "ALTER", "q", "MAXDEPTH", "8")
	out, stderr, code := b.typed("seq 10 | fila enqueue q --lines")
	if code != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(stderr, "line 3: MAXDEPTH") {
		t.Errorf("exit code %d: %q, %q", code, out, stderr)
	}
}

func TestExportedQueuesAreAppliedAsTheyAre(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.furnish()
	b.do("FILA.QUEUE", "CREATE", `odd "name" \ é`, "VISIBILITY", "1234", "NODLQ", "DEDUPWINDOW", "7", "BACKOFFJITTER", "20")
	b.do("FILA.QUEUE", "CREATE", "shared", "DLQ", "orders.dlq")
	b.do("FILA.TOPIC", "BIND", "order.placed", "orders")
	b.do("FILA.TOPIC", "BIND", "order.placed", "shared", "HEADER", "kind", "a*", "HEADER", `x-"y" \`, "\\*", "HEADER", "kind", "*b")
	b.do("FILA.TOPIC", "BIND", "odd \"topic\" é", `odd "name" \ é`, "HEADER", "\tk", "\x01")
	b.do("FILA.THROTTLE", "SET", "tenant:*", "RATE", "2.5", "BURST", "10")
	b.do("FILA.THROTTLE", "SET", "tokens", "RATE", "1500", "BY", "COST")
	b.do("FILA.THROTTLE", "SET", "crm", "CONCURRENCY", "50", "ADAPTIVE", "MIN", "2")
	b.want(0, "", "", "fila throttles hold held 1h")
	b.want(0, "", "", "fila queues export --scripts hooks > queues.toml")
	b.want(0, "nothing to do", "", "fila queues plan queues.toml")
	if source, err := os.ReadFile(filepath.Join(b.dir, "hooks", "orders.on_enqueue.lua")); err != nil || string(source) != hookSource {
		t.Errorf("%q, %v", source, err)
	}
	b.clear()
	b.want(0, "applied", "", "fila queues apply queues.toml")
	b.want(0, "", "", "fila queues export --scripts hooks > again.toml; cmp queues.toml again.toml")

	// A queue that is named comes with its bindings alone.
	out := b.want(0, "", "", "fila queues export shared")
	if want := "[[topics]]\nname = \"order.placed\"\nqueue = \"shared\"\nheaders = { kind = [\"a*\", \"*b\"], \"x-\\\"y\\\" \\\\\" = \"\\\\*\" }\n"; !strings.HasSuffix(out, "\n\n"+want) || strings.Count(out, "[[topics]]") != 1 {
		t.Errorf("%s\nwant at its end\n%s", out, want)
	}
	b.do("FILA.THROTTLE", "SET", "tenant:*", "RATE", "3", "BURST", "10", "CONCURRENCY", "4")
	b.want(0, "~ throttle tenant:* rate 3 → 2.5, concurrency 4 → none\n", "", "fila queues apply queues.toml")
	b.do("FILA.THROTTLE", "SET", "more", "RATE", "3")
	b.do("FILA.THROTTLE", "DEL", "crm")
	b.want(0, "+ throttle crm concurrency 50, adaptive 1, min 2\n- throttle more\n", "", "fila queues apply queues.toml --prune")
	b.want(0, "", "", "fila throttles release held")
	b.do("FILA.TOPIC", "BIND", "more", "orders")
	b.do("FILA.TOPIC", "BIND", "order.placed", "orders", "HEADER", "kind", "\x1b\\[2J")
	b.want(0, "~ bind orders to order.placed kind \"\\x1b\\\\[2J\" → none\n", "", "fila queues apply queues.toml")
	b.want(0, "- unbind orders from more\napplied\n", "", "fila queues apply queues.toml --prune")
	b.want(3, "", `topic "t", queue "nosuch": no such queue`, `printf '[[topics]]\nname = "t"\nqueue = "nosuch"\n' > t.toml; fila queues apply t.toml`)
	b.want(2, "", "t.toml:4: the pattern \"[a\" of header \"k\" has a [ without its ]", `printf '[[topics]]\nname = "t"\nqueue = "orders"\nheaders = { k = "[a" }\n' > t.toml; fila queues apply t.toml`)
	b.do("FILA.TOPIC", "BIND", "raw", "orders", "HEADER", "k", "\xff")
	b.want(1, "", `"\xff" is not UTF-8, which a file in TOML cannot hold`, "fila queues export")
}

func TestScriptsArePushedTriedAndWatched(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.furnish()
	b.files()
	b.do("FILA.SCRIPT", "DEL", "orders", "ON_ENQUEUE")
	b.want(0, "orders\ton_enqueue\t", "", "fila scripts push hooks")
	b.want(0, "gold\tok\n", "", "fila scripts test orders on_enqueue --samples hooks/orders.on_enqueue.samples")
	b.want(1, "weight is 5, not 6", "1 of 2 samples differ", `printf '{"name":"a","headers":{"tier":"gold"},"expect":{"weight":6}}\n{"expect":{"weight":1.0}}\n' > s; fila scripts test orders on_enqueue --samples s`)
	b.want(0, "line 1\tok\n", "", `printf '{"budgets":["a"],"charge":0,"expect":{"budgets":null,"charge":null}}\n' > s; fila scripts test orders on_enqueue --samples s`)
	b.want(2, "", "s:1: json: unknown field", `echo '{"colour":"a"}' > s; fila scripts test orders on_enqueue --samples s`)
	b.want(1, "", "the script does not load", "echo 'return 1' > hooks/mails.on_failure.lua; fila scripts push hooks")
	b.want(2, "", "a hook's file is named", "echo x > hooks/wrong.lua; fila scripts push hooks/wrong.lua")
	b.want(0, "on_failure", "", "echo 'function on_failure(m) return {} end' > hooks/mails.on_failure.lua; rm hooks/wrong.lua; fila scripts push hooks")
}

func TestDeadMessagesAreGroupedAndOneGroupIsRedriven(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders", "MAXATTEMPTS", "1")
	b.want(0, "", "", "seq 6 | fila enqueue orders --lines > ids")
	b.want(0, "", "", "fila work orders --once -- sh -c 'read n; [ $n -gt 4 ] && echo timeout of host $n >&2 && exit 1; echo no such customer $n >&2; exit 1' 2> log")
	groups := strings.Split(strings.TrimSpace(b.want(0, "", "", "fila errors orders.dlq")), "\n")
	if len(groups) != 2 || !strings.HasPrefix(groups[0], "4\tno such customer") || !strings.HasPrefix(groups[1], "2\ttimeout of host") {
		t.Fatalf("%q", groups)
	}
	pattern := strings.Split(groups[1], "\t")[1]
	b.want(0, "2\n", "", "fila redrive orders.dlq --follow --error '"+pattern+"'")
	if b.info("orders", "ready") != 2 || b.info("orders.dlq", "dead") != 4 {
		t.Errorf("%d moved, %d stayed", b.info("orders", "ready"), b.info("orders.dlq", "dead"))
	}
	if out := b.want(0, "", "", "fila browse orders.dlq --error '*customer*' --limit 0"); strings.Count(out, "\n") != 4 {
		t.Errorf("%q", out)
	}
	b.want(0, "\t3\n", "fila: only the first 1 are shown", "fila browse orders.dlq --payload 3 --limit 0; fila browse orders.dlq --limit 1 > first")
}

func TestTheDoctorFindsWhatIsWrong(t *testing.T) {
	b := serve(t)
	b.want(3, "there was no backup", "", "fila doctor")
	b.want(0, "monday", "", "fila backup monday")
	b.want(0, "", "", "fila doctor")
	b.want(0, "checks, and nothing found", "", "fila doctor -o table")
	b.furnish()
	b.do("FILA.ENQUEUE", "mails", "hello")
	b.do("FILA.QUEUE", "PAUSE", "thumbnails", "OUT")
	b.do("FILA.QUEUE", "ALTER", "mails", "MAXDEPTH", "1")
	out := b.want(3, "", "", "fila doctor")
	for _, want := range []string{
		"consumers\tmails has no consumer: 1 message", "dead\torders has dead letters: 1 message", "`fila errors orders.dlq` groups them", "paused\tthumbnails is paused", "full\tmails has room for less",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not find %q:\n%s", want, out)
		}
	}
	_, stderr, code := b.typed("fila doctor --url fila://monitor@" + b.Addr())
	if code != 0 && code != 3 || !strings.Contains(stderr, "the user has no right to it: TIME") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestNamesAreCompletedFromTheBroker(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.furnish()
	for line, want := range map[string]string{
		"fila __complete queues show ''":            "orders\n",
		"fila __complete browse o":                  "orders.dlq\n",
		"fila __complete keys show orders ''":       "tenant-7\n",
		"fila __complete throttles show ''":         "provider:x\n",
		"fila __complete crons show ''":             "morning\n",
		"fila __complete users show ''":             "deploy\n",
		"fila __complete scripts show orders ''":    "on_enqueue\n",
		"fila __complete queues list -o ''":         "jsonl\n",
		"fila __complete browse orders --status ''": "delayed\n",
	} {
		b.completes(want, line)
	}
	out, _, code := b.typed("FILA_URL=fila://127.0.0.1:1 fila __complete queues show ''")
	if code != 0 || !strings.HasPrefix(out, ":4") {
		t.Errorf("without a broker: exit code %d: %s", code, out)
	}
}

// The reason comes first, as a sentence in the words of the command line, and nothing is shown that says nothing.
func TestAnExplanationBeginsWithItsReason(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.do("FILA.ENQUEUE", "orders", "hello", "KEY", "tenant-7")
	b.do("FILA.KEY", "PAUSE", "orders", "tenant-7")
	out := b.want(0, "The key is paused, `fila keys resume` lets it go on.\nstate      paused\nkey        tenant-7\n", "", "fila explain orders --key tenant-7 -o table")
	for _, without := range []string{" -\n", " 0\n", "holders", "reason"} {
		if strings.Contains(out, without) {
			t.Errorf("it shows %q:\n%s", without, out)
		}
	}
	b.want(0, `"holder_count": 0`, "", "fila explain orders --key tenant-7 -o json")
}

// What cannot go next is left out of what goes next, and named.
func TestPeekLeavesOutWhatCannotGo(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	for _, key := range []string{"a", "b", "c"} {
		b.do("FILA.ENQUEUE", "orders", "of "+key, "KEY", key)
	}
	b.do("FILA.KEY", "PAUSE", "orders", "b")
	out := b.want(0, "of a", "messages of b are left out, as none of them can go next: the key is paused", "fila peek orders")
	if !strings.Contains(out, "of c") || strings.Contains(out, "of b") {
		t.Errorf("it shows\n%s", out)
	}
	b.do("FILA.KEY", "RESUME", "orders", "b")
	b.want(0, "of b", "", "fila peek orders")
}

// Limits that are not set are none, and numbers have their units.
func TestNumbersHaveTheirUnits(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders", "LUAMEMORY", "262144", "BACKOFFJITTER", "20")
	b.do("FILA.THROTTLE", "SET", "api", "RATE", "5")
	out := b.want(0, "", "", "fila queues show orders -o table")
	for _, want := range []string{"max_depth               no limit", "ttl_ms                  no limit", "lua_memory_bytes        256 KiB", "backoff_jitter_percent  20%", "lua_timeout_ms          as configured"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not show %q:\n%s", want, out)
		}
	}
	b.want(0, "rate         5/s", "", "fila throttles show api -o table")
	b.want(0, "concurrency  no limit", "", "fila throttles show api -o table")
	b.want(0, "262144", "", "fila queues show orders -o plain | grep lua_memory")
}

// A configuration is checked as a start checks it, with its users.
func TestTheConfigurationIsCheckedWithItsUsers(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.want(2, "", "acl.bad, line 1: user broken", "echo 'user broken on >x ~* +@nosuch' > acl.bad; fila config --auth.acl_file acl.bad")
	b.want(2, "", "auth.acl_file: nowhere does not exist", "fila config --auth.acl_file nowhere")
	b.want(2, "", "auth.users, line 1", "fila config --auth.users 'user x on +@nosuch'")
	b.want(2, "", "server.listen_addr", "echo 'user default on nopass ~* +@all' > acl.open; fila config --auth.acl_file acl.open --server.listen_addr 0.0.0.0:5555")
	b.want(0, "auth.acl_file", "", "echo 'user worker on >x ~* +@all' > acl.good; fila config --auth.acl_file acl.good")
}

// Queues are selected and sorted by the broker.
func TestQueuesAreListedByWhatIsWrong(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	for i, name := range []string{"a", "b", "c", "d"} {
		b.do("FILA.QUEUE", "CREATE", name)
		for range i {
			b.do("FILA.ENQUEUE", name, "x")
		}
	}
	b.do("FILA.QUEUE", "PAUSE", "a")
	for line, want := range map[string]string{
		"fila queues list":                                 "a b c d",
		"fila queues list --all --limit 3":                 "a a.dlq b",
		"fila queues list --trouble any --by trouble":      "d c b a",
		"fila queues list --trouble no_consumer --by name": "b c d",
		"fila queues list --by ready --reverse":            "a b c d",
		"fila queues list --by ready --limit 2":            "d c",
		"fila queues list --state paused":                  "a",
	} {
		out, _, code := b.typed(line + " | cut -f 1")
		if got := strings.Join(strings.Fields(out), " "); got != want || code != 0 {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	b.want(2, "", "--trouble must be one of", "fila queues list --trouble nosuch")
}
