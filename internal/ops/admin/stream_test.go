package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// follower reads a stream of server-sent events.
type follower struct {
	t      *testing.T
	resp   *http.Response
	events chan event
}

type event struct{ name, data string }

// follow opens a stream that must begin.
func (s *site) follow(path string, options ...option) *follower {
	s.t.Helper()
	resp := s.send("GET", path, "", options...)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%s: %d, %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	f := &follower{s.t, resp, make(chan event, 1000)}
	go func() {
		defer close(f.events)
		var e event
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			switch line = strings.TrimSuffix(line, "\n"); {
			case line == "" && e.data != "":
				f.events <- e
				e = event{}
			case strings.HasPrefix(line, "event: "):
				e.name = line[len("event: "):]
			case strings.HasPrefix(line, "data: "):
				e.data += line[len("data: "):]
			}
		}
	}()
	return f
}

// next returns the next event; the zero one at the end of the stream.
func (f *follower) next() event {
	f.t.Helper()
	return testkit.Receive(f.t, "an event comes", f.events)
}

// json returns the data of the next event, which must have that name.
func (f *follower) json(name string) map[string]any {
	f.t.Helper()
	e := f.next()
	var m map[string]any
	if err := json.Unmarshal([]byte(e.data), &m); err != nil || e.name != name {
		f.t.Fatalf("%+v comes, %v", e, err)
	}
	return m
}

// until reads figures until they are as wanted, and returns them.
func (f *follower) until(what string, is func(figures map[string]any) bool) (figures map[string]any) {
	f.t.Helper()
	testkit.Eventually(f.t, what, func() bool {
		figures = f.json("figures")
		return is(figures)
	})
	return figures
}

// ends reads to the end of the stream, and returns how long that took and what came last.
func (f *follower) ends() (took time.Duration, last event) {
	f.t.Helper()
	began := time.Now()
	for {
		e := f.next()
		if e == (event{}) {
			return time.Since(began), last
		}
		last = e
	}
}

func TestEventsAreStreamed(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	admin := as("admin", "nimda")
	f := s.follow("/v1/events?channel=fila:jobs:created&channel=fila:jobs:enqueued", as("bob", "bob"))
	all := s.follow("/v1/events?pattern=fila:*:created", admin)
	s.run(200, "FILA.QUEUE CREATE mails", admin)
	s.run(200, "FILA.QUEUE CREATE jobs", admin)
	s.run(200, "FILA.ENQUEUE jobs x", admin)
	if e := f.json(""); e["event"] != "created" || e["queue"] != "jobs" {
		t.Errorf("first comes %v", e)
	}
	if e := f.json(""); e["event"] != "enqueued" || e["queue"] != "jobs" {
		t.Errorf("then comes %v", e)
	}
	seen := map[any]bool{}
	for range 4 { // with dead-letter queues
		seen[all.json("")["queue"]] = true
	}
	if !seen["mails"] || !seen["jobs"] {
		t.Errorf("of the pattern come %v", seen)
	}
}

func TestAStreamThatMayNotBeIsRefusedAtOnce(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	for path, want := range map[string]int{
		"/v1/events": 400, "/v1/events?channel=a&pattern=b": 400, "/v1/events?" + strings.Repeat("channel=fila:jobs:dead&", channelsMax+1): 400,
		"/v1/events?channel=fila:mails:dead": 403, "/v1/events?pattern=fila:*": 403, "/v1/live?queue=mails": 403, "/v1/live?queue=jobs": 404,
	} {
		if got := s.do("GET", path, "", as("bob", "bob")); got.status != want || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%.60s: %d %s, want %d", path, got.status, got.body, want)
		}
	}
	full := s.follow("/v1/events?"+strings.Repeat("channel=fila:jobs:dead&", channelsMax), as("bob", "bob"))
	_ = full.resp.Body.Close()
	s.run(403, "FILA.LEASE jobs", as("ann", "nna"))
	if got := s.do("GET", "/v1/events?channel=fila:jobs:dead", "", as("ann", "nna")); got.status != 403 {
		t.Errorf("without the right to subscribe: %d", got.status)
	}
}

// figuresOf returns what a stream shows of a queue, and the names of the first keys.
func figuresOf(figures map[string]any) (queue map[string]any, keys []any) {
	for _, key := range figures["keys"].([]any) {
		keys = append(keys, key.(map[string]any)["key"])
	}
	return figures["queue"].(map[string]any), keys
}

func TestFiguresOfAQueueComeEachSecond(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	s.run(200, "FILA.QUEUE CREATE jobs")
	f, old := s.follow("/v1/live?queue=jobs"), s.follow("/v1/live?queue=jobs&by=age")
	first := f.json("figures")
	if queue, keys := figuresOf(first); queue["name"] != "jobs" || queue["ready"] != 0.0 || queue["keys_no_consumer"] != 0.0 || len(keys) != 0 {
		t.Errorf("first %v", first)
	}
	s.run(200, "FILA.ENQUEUE jobs x KEY old")
	s.run(200, "FILA.ENQUEUE jobs x KEY deep")
	s.run(200, "FILA.ENQUEUE jobs x KEY deep")
	second := f.until("the stream shows the messages", func(e map[string]any) bool {
		queue, _ := figuresOf(e)
		return queue["ready"] == 3.0
	})
	if second["at"].(float64) <= first["at"].(float64) {
		t.Errorf("then %v", second)
	}
	f.until("the sweep finds the keys", func(e map[string]any) bool {
		queue, keys := figuresOf(e)
		return queue["keys_no_consumer"] == 2.0 && slices.Equal(keys, []any{"deep", "old"})
	})
	old.until("the oldest is first", func(e map[string]any) bool {
		_, keys := figuresOf(e)
		return slices.Equal(keys, []any{"old", "deep"})
	})
	for query, status := range map[string]int{"queue=nosuch": 404, "queue=": 400, "queue=jobs&by=size": 400, "cursor=x": 400, "queue=jobs&by=": 400} {
		if got := s.do("GET", "/v1/live?"+query, ""); got.status != status {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	s.run(200, "FILA.QUEUE DELETE jobs FORCE")
	if _, last := f.ends(); last.name != "end" || !strings.Contains(last.data, "NOQUEUE") {
		t.Errorf("without its queue it ends with %+v", last)
	}
}

// However many queues there are, an event has one page of them.
func TestFiguresOfTheBrokerAreSumsAndAPageOfQueues(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	admin, bob := as("admin", "nimda"), as("bob", "bob")
	for i := range liveQueues + 10 {
		s.run(200, fmt.Sprintf("FILA.QUEUE CREATE mails%03d NODLQ", i), admin)
	}
	s.run(200, "FILA.QUEUE CREATE jobs NODLQ", admin)
	s.run(200, "FILA.ENQUEUE jobs x", admin)
	seen := map[string]bool{}
	for cursor, pages := "0", 0; pages == 0 || cursor != "0"; pages++ {
		f := s.follow("/v1/live?cursor="+cursor, admin)
		figures := f.json("figures")
		_ = f.resp.Body.Close()
		if stats := figures["stats"].(map[string]any); stats["queues"] != float64(liveQueues+11) || stats["ready"] != 1.0 {
			t.Fatalf("the sums are %v", stats)
		}
		queues := figures["queues"].([]any)
		if len(queues) > liveQueues || pages > 2 {
			t.Fatalf("page %d has %d queues", pages, len(queues))
		}
		for _, q := range queues {
			seen[q.(map[string]any)["name"].(string)] = true
		}
		cursor = figures["next"].(string)
	}
	if len(seen) != liveQueues+11 {
		t.Errorf("the pages show %d queues", len(seen))
	}
	for _, path := range []string{"/v1/live?match=jobs*", "/v1/live?match=job%5Bs%5D&by=ready", "/v1/live?trouble=no_consumer"} {
		if queues := s.follow(path, bob).json("figures")["queues"].([]any); len(queues) != 1 || queues[0].(map[string]any)["ready"] != 1.0 {
			t.Errorf("%s shows %v", path, queues)
		}
	}
	if queues := s.follow("/v1/live", bob).json("figures")["queues"].([]any); len(queues) != 1 || queues[0].(map[string]any)["name"] != "jobs" {
		t.Errorf("with a right to one of them it shows %v", queues)
	}
}

// However a stream has authenticated, and whatever it streams.
func TestStreamsEndWithinASecondWithTheirUser(t *testing.T) {
	for name, end := range map[string]string{"deleted": "ACL DELUSER bob", "closed": "CLIENT KILL USER bob"} {
		synctest.Test(t, func(t *testing.T) {
			l := newPipes()
			s := serveOn(t, l, newBroker(t, users()...), nil)
			s.connect(l)
			admin, session := as("admin", "nimda"), s.session("bob", "bob")
			s.run(200, "FILA.QUEUE CREATE jobs", admin)
			var all []*follower
			for _, path := range []string{"/v1/live?queue=jobs", "/v1/events?channel=fila:jobs:dead"} {
				all = append(all, s.follow(path, session), s.follow(path, as("bob", "bob")))
			}
			mine := s.follow("/v1/events?channel=fila:jobs:dead", admin)
			s.run(200, end, admin)
			for i, f := range all {
				if took, _ := f.ends(); took > time.Second {
					t.Errorf("%s: stream %d ends after %s", name, i, took)
				}
			}
			synctest.Wait()
			select {
			case e, open := <-mine.events:
				t.Errorf("%s: the stream of another user has %+v, open %t", name, e, open)
			default:
			}
			_ = mine.resp.Body.Close()
		})
	}
}

func TestStreamsEndWithTheirSession(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	session := s.session("bob", "bob")
	live, events := s.follow("/v1/live", session), s.follow("/v1/events?channel=fila:jobs:dead", session)
	s.do("DELETE", "/v1/session", "", session)
	for _, f := range []*follower{live, events} {
		if _, last := f.ends(); last.name != "end" {
			t.Errorf("its last event is %+v", last)
		}
	}
	if n := len(s.broker.server.Conns()); n != 0 {
		testkit.Eventually(t, "their connections end", func() bool { return len(s.broker.server.Conns()) == 0 })
	}
}

// A user that loses a right keeps its session, and its stream ends.
func TestAStreamEndsWithTheRightToIt(t *testing.T) {
	s := serve(t, newBroker(t, users()...), nil)
	admin, bob := as("admin", "nimda"), s.session("bob", "bob")
	s.run(200, "FILA.QUEUE CREATE jobs", admin)
	live, events := s.follow("/v1/live?queue=jobs", bob), s.follow("/v1/events?channel=fila:jobs:dead", bob)
	s.run(200, "ACL SETUSER bob resetkeys resetchannels", admin)
	if _, last := live.ends(); !strings.Contains(last.data, "NOPERM") {
		t.Errorf("figures end with %+v", last)
	}
	events.ends()
	s.run(200, "ACL WHOAMI", bob)
}

// A page of queues whose names match is found among many that do not, and so is that of a user that
// may look at few of them.
func TestFiguresOfFewAmongManyQueuesAreOnePage(t *testing.T) {
	b := newBroker(t, append(users(), "user eve on >eve ~queue-2999 +fila.figures +fila.stats")...)
	s := serve(t, b, nil)
	admin := as("admin", "nimda")
	var definition strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&definition, `,{"name":"queue-%04d","dlq":false}`, i)
	}
	words, err := json.Marshal([]string{"FILA.QUEUE", "APPLY", `{"queues":[` + definition.String()[1:] + `]}`})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.do("POST", "/v1/command", string(words), admin); got.status != 200 {
		t.Fatal(got.body)
	}
	for path, user := range map[string]option{"/v1/live?match=*2999": admin, "/v1/live": as("eve", "eve")} {
		figures := s.follow(path, user).json("figures")
		queues, _ := figures["queues"].([]any)
		if len(queues) != 1 || queues[0].(map[string]any)["name"] != "queue-2999" || figures["next"] != "0" {
			t.Errorf("%s: %d queues, next %v", path, len(queues), figures["next"])
		}
	}
	figures := s.follow("/v1/live?match=queue-*", admin).json("figures")
	if queues, _ := figures["queues"].([]any); len(queues) != liveQueues || figures["next"] == "0" {
		t.Errorf("where all match, %d queues, next %v", len(queues), figures["next"])
	}
}

func TestAStreamKeepsItsSessionAndShowsThatItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newPipes(), newBroker(t, users()...)
		s := serveOn(t, l, b, nil)
		b.engine.Submit(nil)
		theirs, over, err := b.Connect("bob", l.Addr(), l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		token := s.sessions.begin("bob", theirs, over)
		c := l.dial()
		defer c.Close()
		go func() {
			_, _ = c.Write([]byte("GET /v1/events?channel=fila:jobs:dead HTTP/1.1\r\nHost: localhost\r\nCookie: fila-session=" + token + "\r\n\r\n"))
		}()
		signs, ended := 0, make(chan struct{})
		go func() {
			defer close(ended)
			for r := bufio.NewReader(c); ; {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == ": quiet\n" {
					signs++
				}
			}
		}()
		time.Sleep(sessionIdle * 3)
		if s.sessions.find(token) == nil {
			t.Error("the session has ended beside its stream")
		}
		time.Sleep(sessionLife)
		<-ended
		if s.sessions.find(token) != nil {
			t.Error("the session never ends")
		}
		if most := int(sessionLife / quietEvery); signs < most-10 || signs > most+1 {
			t.Errorf("%d signs of life, want %d", signs, most)
		}
	})
}
