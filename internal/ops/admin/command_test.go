package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/internal/broker/compat"
)

func TestACommandIsAnsweredAsJSON(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	if got := s.run(200, "FILA.QUEUE CREATE jobs"); got != `"OK"` {
		t.Errorf("a status is %s", got)
	}
	if got := s.run(200, "DBSIZE"); got != "2" { // with its dead-letter queue
		t.Errorf("a number is %s", got)
	}
	if got := s.run(200, "FILA.CONFIG GET nothing"); got != "null" {
		t.Errorf("nothing is %s", got)
	}
	if got := s.run(200, "FILA.QUEUE LIST"); got != `["jobs","jobs.dlq"]` {
		t.Errorf("an array is %s", got)
	}
	var stats map[string]any
	if err := json.Unmarshal([]byte(s.run(200, "FILA.STATS jobs")), &stats); err != nil || stats["name"] != "jobs" || stats["ready"] != 0.0 {
		t.Errorf("a map is %v, %v", stats, err)
	}
	got := s.do("POST", "/v1/command", `["FILA.QUEUE","CREATE","jobs"]`)
	if got.status != http.StatusConflict || got.json(t)["code"] != "QUEUEEXISTS" || !strings.HasPrefix(got.json(t)["error"].(string), "QUEUEEXISTS ") {
		t.Errorf("an error is %d %s", got.status, got.body)
	}
	if got.header.Get("Content-Type") != "application/json" {
		t.Errorf("it is %s", got.header.Get("Content-Type"))
	}
}

func TestTheFiguresOfAQueueAreFetchedByItsName(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	s.run(200, "FILA.QUEUE CREATE jobs")
	s.run(200, "FILA.QUEUE CREATE a/b")
	s.run(200, "FILA.ENQUEUE a/b x")
	for path, ready := range map[string]float64{"/v1/queues/jobs": 0, "/v1/queues/a%2Fb": 1} {
		got := s.do("GET", path, "")
		if figures := got.json(t); got.status != 200 || figures["ready"] != ready || figures["state"] == nil || figures["oldest_ready_ms"] != 0.0 && ready == 0 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.do("GET", "/v1/queues/none", ""); got.status != http.StatusNotFound || got.json(t)["code"] != "NOQUEUE" {
		t.Errorf("a queue that is not there: %d %s", got.status, got.body)
	}
	for _, path := range []string{"/v1/queues/", "/v1/queues", "/v1/queues/a/b"} {
		if got := s.do("GET", path, ""); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.do("POST", "/v1/queues/jobs", ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got.status)
	}
}

func TestArgumentsAndRepliesAreBinarySafe(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	for _, x := range []struct{ body, want string }{
		{`["ECHO","a\"\u00e9<&\n\u0000"]`, `"a\"é<&\n\u0000"`},
		{`["ECHO",{"base64":"/wAK"}]`, `{"base64":"/wAK"}`},
		{`["ECHO",{"base64":""}]`, `""`},
		{`[{"base64":"RUNITw=="},"x"]`, `"x"`},
		{` [ "ECHO" , "\ufffd" ] `, `"` + "\ufffd" + `"`},
	} {
		if got := s.do("POST", "/v1/command", x.body); got.status != 200 || strings.TrimSpace(got.body) != x.want {
			t.Errorf("%s: %d %s, want %s", x.body, got.status, got.body, x.want)
		}
	}
}

func TestABodyThatIsNoCommandIsRefused(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	for _, body := range []string{
		`{}`, `[]`, `"PING"`, `null`, `[null]`, `[1]`, `["PING",1]`, `["PING"`, `["PING"] x`, `["PING",["x"]]`, `["PING",{}]`, `["PING",{"base64":1}]`,
		`["PING",{"base64":"*"}]`, `["PING",{"base64":"","more":1}]`, `["PING",{"base64":null}]`, "[\"ECHO\",\"\xff\"]", `["ECHO","\ud800"]`, `PING`,
	} {
		got := s.do("POST", "/v1/command", body)
		if got.status != http.StatusBadRequest || got.json(t)["code"] != "ERR" || strings.Count(got.body, "\n") != 1 {
			t.Errorf("%q: %d %s", body, got.status, got.body)
		}
	}
	if got := s.do("POST", "/v1/command", `["PING"]`, with("Content-Type", "text/plain")); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form of another page may send text/plain, and it is answered %d", got.status)
	}
	if got := s.do("GET", "/v1/command", ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered %d", got.status)
	}
}

func TestErrorsHaveTheirStatus(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	s.run(200, "FILA.QUEUE CREATE jobs MAXDEPTH 1")
	s.run(200, "FILA.ENQUEUE jobs x")
	for command, want := range map[string]int{
		"NOSUCH": 400, "FILA.ENQUEUE": 400, "FILA.ENQUEUE nosuch x": 404, "FILA.ENQUEUE jobs x": 429, "FILA.ACK jobs x": 400,
		"FILA.LEASE jobs BLOCK 1000": 400,
	} {
		s.run(want, command)
	}
	for _, c := range compat.ErrorCodes() {
		if statuses()[c.Code] == 0 {
			t.Errorf("%s has no HTTP status", c.Code)
		}
	}
	if n := len(compat.ErrorCodes()); n != len(statuses()) {
		t.Errorf("there are %d codes, and statuses for %d", n, len(statuses()))
	}
}

// Of each command that has more than one reply or none, that waits, or that is about the
// state of its connection, a request would wait in vain or change nothing.
func TestCommandsThatNeedAConnectionAreRefused(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	s.run(200, "FILA.QUEUE CREATE jobs")
	var connection []string
	for _, c := range commands.Describe() {
		pushes := strings.HasPrefix(c.Returns, "push") || c.Name == "monitor"
		if pushes || slices.Contains(c.Flags, "no_auth") || slices.Contains(c.Categories, "transaction") || c.Name == "client|reply" {
			connection = append(connection, c.Name)
		}
	}
	if len(connection) < 12 {
		t.Fatalf("only %q are found in the table", connection)
	}
	for _, name := range connection {
		if got := s.run(400, strings.ReplaceAll(name, "|", " ")+" x"); !strings.Contains(got, "is not for HTTP") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, waiting := range []string{"fila.lease jobs block 0", "FILA.MLEASE 1 jobs COUNT 1 BLOCK 0"} {
		if got := s.run(400, waiting); !strings.Contains(got, "is not for HTTP") {
			t.Errorf("%s: %s", waiting, got)
		}
	}
	if got := s.run(200, "FILA.LEASE jobs"); got != "[]" {
		t.Errorf("a lease that does not wait is answered %s", got)
	}
}

func TestNothingOfARequestIsLeftForTheNext(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	s.run(200, "CLIENT SETNAME mine")
	if got := s.run(200, "CLIENT GETNAME"); got != `"fila-admin"` {
		t.Errorf("the name is %s", got)
	}
	first, second := s.run(200, "CLIENT ID"), s.run(200, "CLIENT ID")
	if first == second {
		t.Errorf("both have connection %s", first)
	}
}
