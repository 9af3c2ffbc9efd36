//go:build !race

package commands

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// secretName begins the names of a queue, and of all that is in it, which a user has no right to. ids are those of
// its messages.
const secretName = "topsecret"

// withSecret returns a server with the queue mine beside a secret one, which share a throttle, a budget and a
// topic, the ids of the messages in the secret one, and that of a message in mine.
func withSecret(t *testing.T) (s *server, ids []string, mine string) {
	t.Helper()
	s = restricted(t, "user limited on nopass ~[^t]* &fila:[^t]* +@all -@admin +fila.topic +fila.cron")
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	do := func(line string) string {
		got := s.do(t, strings.Fields(line)...)
		if got[0] == '-' {
			t.Fatalf("%s: %s", line, got)
		}
		return id.FindString(got)
	}
	for _, line := range []string{
		"FILA.QUEUE CREATE mine", "FILA.QUEUE CREATE topsecret", "FILA.THROTTLE SET shared CONCURRENCY 1",
		"FILA.BUDGET SET acme DETAIL", "FILA.BUDGET CREDIT acme 1000",
		"FILA.TOPIC BIND shared mine", "FILA.TOPIC BIND shared topsecret HEADER topsecret-header topsecret-value",
		"FILA.CRON SET topsecret-cron topsecret @yearly topsecret-payload KEY topsecret-key",
		"FILA.KEY SET topsecret topsecret-set WEIGHT 2",
	} {
		do(line)
	}
	if got := s.do(t, "FILA.SCRIPT", "LOAD", "topsecret", "ON_FAILURE", "function on_failure(m) return {} end --topsecret"); got[0] != '$' {
		t.Fatal(got)
	}
	const message = "FILA.ENQUEUE topsecret topsecret-payload KEY topsecret-key THROTTLE shared BUDGET acme"
	const lease = "FILA.LEASE topsecret CONSUMER topsecret-consumer"
	for _, end := range []string{"FILA.ACK topsecret ID", "FILA.NACK topsecret ID DEAD ERROR topsecret-error", ""} {
		secret := do(message)
		ids = append(ids, secret)
		if do(lease) != secret {
			t.Fatal("another message is leased")
		}
		if end != "" {
			do(strings.ReplaceAll(end, "ID", secret))
		}
	}
	ids = append(ids, do("FILA.ENQUEUE topsecret topsecret-payload KEY topsecret-key"))
	return s, ids, do("FILA.ENQUEUE mine hello KEY k THROTTLE shared BUDGET acme")
}

// What a reply tells of a queue takes a right to that queue: each command's examples, and what asks for what the
// two queues share, are run by a user of one of them. Administrative commands are not for such a user.
func TestNoReplyTellsOfAQueueWithoutARightToIt(t *testing.T) {
	s, ids, mine := withSecret(t)
	walked, shown := 0, ""
	ask := func(user *fakeConn, line string) {
		words, err := splitLine(strings.NewReplacer("<id>", mine, "<receipt>", mine+":1").Replace(line))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, secretName) }) {
			t.Fatalf("%s: names what is secret itself", line)
		}
		got := user.do(words...)
		shown += got
		if strings.Contains(got, secretName) || slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(got, id) }) {
			t.Errorf("%s: %q", line, got)
		}
		walked++
	}
	shared := []string{
		"FILA.EXPLAIN mine KEY k", "FILA.EXPLAIN mine <id>", "FILA.BUDGET GET acme", "FILA.BUDGET LIST", "FILA.BUDGET HISTORY acme", "FILA.THROTTLE GET shared", "FILA.THROTTLE LIST",
		"FILA.TOPIC INFO shared", "FILA.TOPIC LIST", "FILA.CRON LIST", "FILA.CRON GET topsecre?-cron", "FILA.SCRIPT LIST", "FILA.QUEUE LIST", "FILA.FIGURES", "FILA.STATS", "FILA.METRICS",
		"FILA.METRICS OPENMETRICS", "FILA.METRICS PROTOBUF", "FILA.SIGNAL LIST", "FILA.CONFIG LIST", "FILA.WHOAMI", "KEYS *", "SCAN 0 COUNT 1000", "DBSIZE", "INFO everything", "PUBSUB CHANNELS",
		"FILA.KEYS mine", "FILA.BROWSE mine", "FILA.GET mine <id>", "FILA.QUEUE INFO mine", "FILA.MLEASE 1 mine", "CLIENT LIST", "ACL WHOAMI", "COMMAND LIST",
	}
	for _, line := range shared {
		ask(s.connect("limited"), line)
	}
	for _, name := range []string{"holder_count", "bindings", "acme", "shared"} {
		if !strings.Contains(shown, name) {
			t.Errorf("nothing shows %s", name)
		}
	}
	for _, c := range s.handler.table.All {
		user := s.connect("limited, " + c.Name)
		user.do("AUTH", "limited", "x")
		for _, e := range c.Spec.Examples {
			if !user.ended() {
				ask(user, e.Command())
			}
		}
	}
	if walked < 200 {
		t.Errorf("%d commands were asked", walked)
	}
}

// Throttles and budgets belong to no queue: metrics show them to a user that may list them.
func TestMetricsShowWhatTheUserMayList(t *testing.T) {
	s := restricted(t, "user both on nopass ~a +fila.metrics +fila.throttle|list +fila.budget|list", "user metrics on nopass ~a +fila.metrics", "user throttles on nopass ~* +fila.metrics +fila.throttle|list")
	for _, command := range []string{"FILA.THROTTLE SET a-throttle RATE 1", "FILA.BUDGET SET a-budget"} {
		if got := s.do(t, strings.Fields(command)...); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	s.do(t, "FILA.METRICS") // names have series from the second scrape on at the latest
	for user, want := range map[string][2]bool{"both": {true, true}, "metrics": {false, false}, "throttles": {true, false}} {
		got := s.connect(user).do("FILA.METRICS")
		if shown := [2]bool{strings.Contains(got, `throttle="a-throttle"`), strings.Contains(got, `budget="a-budget"`)}; shown != want {
			t.Errorf("%s sees throttles and budgets: %v, want %v", user, shown, want)
		}
	}
}
