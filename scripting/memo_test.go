package scripting

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// chance makes messages, settings, signals and budgets that are often alike, and never quite.
type chance struct{ *rand.Rand }

func (c chance) of(options ...string) string { return options[c.IntN(len(options))] }

func (c chance) message() *hook.Message {
	msg := &hook.Message{
		Queue: c.of("orders", "x"), PayloadSize: c.IntN(3) * 70_000, Key: c.of(hook.DefaultKey, "acme", ""), Meta: storage.Meta{Weight: uint32(1 + c.IntN(2)), Throttles: []string{"a", "b", "c"}[:c.IntN(4)], Budgets: []string{"m", "n"}[:c.IntN(3)], Charge: int64(c.IntN(3)) << 32},
	}
	if c.IntN(2) == 0 {
		msg.Retries = &queueset.Retries{MaxAttempts: queueset.Optional(c.IntN(3)), Backoff: queueset.Optional(c.IntN(3)), MaxBackoff: queueset.Optional(c.IntN(2))}
	}
	for range c.IntN(4) {
		msg.Headers = append(msg.Headers, storage.Header{
			Name:  []byte(c.of("tenant", "tier", "x", "providers", "class", "content-type", "user", "urgent", "spread_ms")),
			Value: []byte(c.of("acme", "bolt", "gold", "", "yes", "100", "stripe,acme", "text/plain", strings.Repeat("y", 600))),
		})
	}
	return msg
}

func (c chance) view() hook.View {
	set := map[string]string{}
	for range c.IntN(4) {
		set[c.of("weight.acme", "vip.acme", "canary.percent", "maintenance", "x", "1")] = c.of("1", "50", "yes", "")
	}
	return fake{
		set, map[string]float64{"acme failed 1m": float64(c.IntN(3)), "acme acked 5m": float64(c.IntN(3))},
		map[string]int64{c.of("acme", "bolt"): int64(c.IntN(3) * 500)},
	}
}

// alike gives a hook that remembers and a dry run of it the same messages.
func alike(t *testing.T, s *Sandbox, source string, c chance, n int) {
	t.Helper()
	loaded, err := s.Load(hook.Caller{}, hook.OnEnqueue, source)
	if err != nil {
		return
	}
	h := loaded.(*Hook)
	within := hook.Bounds{Errors: ^uint32(0)}
	view := c.view()
	for range n {
		if c.IntN(8) == 0 {
			view = c.view()
		}
		msg := c.message()
		want := h.Try(msg, view, within)
		got, err := h.OnEnqueue(time.Now(), msg, view, within)
		if said(err) != said(want.Err) && !limited(err) && !limited(want.Err) {
			t.Fatalf("%v, without remembering %v, of\n%s", err, want.Err, source)
		}
		if err == nil && want.Err == nil && !reflect.DeepEqual(got, want.Enqueue) {
			t.Fatalf("%+v, without remembering %+v, of %+v and\n%s", got, want.Enqueue, msg, source)
		}
	}
	if st := h.Stats(time.Now()); st.Calls != uint64(n) {
		t.Fatalf("%d calls of %d are counted", st.Calls, n)
	}
}

// said is an error without the addresses that gopher-lua puts into some.
func said(err error) string {
	return regexp.MustCompile("0x[0-9a-f]+").ReplaceAllString(fmt.Sprint(err), "")
}

// limited says that an error is of a limit, which a busy machine may hit or not.
func limited(err error) bool {
	e, ok := err.(*Error) //nolint:errorlint // never wrapped
	return ok && e.Limit
}

// What is remembered is what the script would decide, whatever it reads and in
// whatever order, and whatever else takes its place.
func TestRememberedDecisionsAreTheScripts(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Memo = 64 // much is pushed out
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recipes, sighted, random := 2000, 300, uint64(200) // messages of each recipe, generated scripts
	if testing.Short() {
		recipes, sighted, random = 200, 60, 20
	}
	const seed = 7
	c := chance{rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // nothing is secret
	for _, r := range cookbook(t) {
		if strings.Contains(r.source, "function on_enqueue") {
			alike(t, s, r.source, c, recipes)
		}
	}
	sees := []string{
		"msg.queue", "msg.payload_size", "msg.fairness_key", "msg.weight", "#msg.throttle_keys", "msg.throttle_keys[1]", "#msg.headers", "msg.id", "msg.attempts", "msg.charge", "msg.max_attempts", "msg.backoff_ms", "msg.budgets[1]",
		"msg.headers.tenant", "msg.headers['tier']", "msg.headers[msg.fairness_key]", "fila.get('weight.acme')", "fila.get(tostring(msg.headers.tenant), 'd')", "fila.signal(tostring(msg.headers.tenant), 'failed')",
		"fila.budget(tostring(msg.headers.tenant))",
		"(function() local s = '' for n, v in pairs(msg.headers) do s = s .. n .. v end return s end)()",
	}
	for range sighted {
		var b strings.Builder
		b.WriteString("function on_enqueue(msg) local s = ''\n")
		for range 1 + c.IntN(10) {
			see := sees[c.IntN(len(sees))]
			fmt.Fprintf(&b, "if tostring(%s) %s '%s' then s = s .. tostring(%s) end\n", see, c.of("==", "~=", "<"), c.of("acme", "nil", "1", "m"), sees[c.IntN(len(sees))])
		}
		b.WriteString("return { fairness_key = 'k' .. fila.hash(s, 1000), throttle_keys = { s ~= '' and s:sub(1, 99) or nil }, delay_ms = #s, priority = #s % 10, budgets = { s:sub(1, 3) .. 'm' }, charge = #s } end")
		alike(t, s, b.String(), c, 100)
	}
	for i := range random {
		g := grammar{rng: rand.New(rand.NewPCG(seed, i))} //nolint:gosec // see above
		g.block(3)
		alike(t, s, "function on_enqueue(msg)\nlocal a, b, c = msg.headers.tenant, fila.get('x'), {}\n"+g.String()+
			"\nreturn { fairness_key = 'k' .. tostring(a):sub(1, 9), weight = #tostring(b) + 1 } end", c, 8)
	}
}

func remembering(t *testing.T, source string) (*Hook, func(msg *hook.Message, view hook.View) string) {
	t.Helper()
	h := load(t, patientSandbox(t, time.Minute), hook.OnEnqueue, source)
	return h, func(msg *hook.Message, view hook.View) string {
		d, err := h.OnEnqueue(time.Now(), msg, view, hook.Bounds{})
		if err != nil {
			return err.Error()
		}
		return decided(&hook.Trial{Enqueue: d}, hook.OnEnqueue)
	}
}

func TestOnlyWhatTheScriptReadsMatters(t *testing.T) {
	h, decide := remembering(t, tenantScript(t))
	settings := map[string]string{}
	view := fake{settings: settings}
	want := func(recalled uint64, weight string) {
		t.Helper()
		msg := benchMessage()
		msg.PayloadSize = int(recalled)
		if got := decide(msg, view); got != "fairness_key=acme weight="+weight+" throttle_keys=tenant:acme" {
			t.Error(got)
		}
		st := h.Stats(time.Now())
		if st.Recalled != recalled {
			t.Errorf("%d recalled, want %d", st.Recalled, recalled)
		}
		if n := st.Latency.Count(); n != st.Calls {
			t.Errorf("%d calls, of %d the time is known", st.Calls, n)
		}
	}
	want(0, "1")
	want(1, "1")
	settings["weight.acme"] = "9"
	want(1, "9")
	want(2, "9")
	settings["weight.bolt"] = "4" // no script has read it
	want(3, "9")
	delete(settings, "weight.acme")
	want(3, "1")
}

// A signal changes without a change of the settings, so a run that has read one says nothing about
// the next message. Runs of the same script that have read none do.
func TestDecisionsBySignalsAreNotRemembered(t *testing.T) {
	h, decide := remembering(t, `function on_enqueue(msg)
  if msg.headers.tenant == "trusted" then
    return { weight = 9 }
  end
  return { weight = 1 + fila.signal(msg.headers.tenant, "failed") }
end`)
	view := fake{signals: map[string]float64{}}
	for i := range 5 {
		view.signals["acme failed 1m"] = float64(i)
		if got, want := decide(benchMessage(), view), fmt.Sprint("weight=", 1+i); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	trusted := &hook.Message{Headers: []storage.Header{{Name: []byte("tenant"), Value: []byte("trusted")}}}
	for range 3 {
		if got := decide(trusted, view); got != "weight=9" {
			t.Error(got)
		}
	}
	if st := h.Stats(time.Now()); st.Calls != 8 || st.Recalled != 2 {
		t.Errorf("%d of %d calls are recalled", st.Recalled, st.Calls)
	}
}

// An error is made and counted each time, and opens the breaker as ever; a decision
// that is known does not close it, as nothing shows that the script is well.
func TestErrorsAreNotRemembered(t *testing.T) {
	h, decide := remembering(t, "function on_enqueue(msg) if msg.headers.bad then error('bad') end return { weight = 2 } end")
	good, bad := &hook.Message{}, &hook.Message{Headers: []storage.Header{{Name: []byte("bad")}}}
	for range 3 {
		decide(bad, nil)
		decide(bad, nil)
		decide(good, nil) // it ends the row, known or not
	}
	st := h.Stats(time.Now())
	if st.Calls != 9 || st.Errors != 6 || st.Recalled != 2 || st.Row != 0 || st.State != hook.BreakerClosed {
		t.Errorf("%+v", st)
	}
	for range 3 {
		decide(bad, nil)
	}
	decide(good, nil)
	if st = h.Stats(time.Now()); st.State != hook.BreakerOpen || st.Skipped != 1 || st.Recalled != 2 || st.Calls != 12 {
		t.Errorf("%+v", st)
	}
}

// Whatever scripts and messages do, the table has its size, and a path too.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Memo, cfg.Timeout = 100, time.Minute // a busy machine is not what is tested
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	echo := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) return { fairness_key = msg.headers.x, throttle_keys = { msg.headers.y } } end")
	loop := load(t, s, hook.OnEnqueue, "function on_enqueue(msg) for i = 1, 100 do if msg.headers['x' .. i] then return {} end end end")
	for i := range 5000 {
		long := strings.Repeat("y", i%500+1)
		msg := &hook.Message{Headers: []storage.Header{{Name: []byte("x"), Value: fmt.Append(nil, i)}, {Name: []byte("y"), Value: []byte(long)}}}
		for _, h := range []*Hook{echo, loop} {
			h.hitScore = hitScoreMax
			if _, err := h.OnEnqueue(time.Now(), msg, nil, hook.Bounds{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(s.memo.slots) != 128 {
		t.Errorf("%d slots", len(s.memo.slots))
	}
	taken := 0
	for i := range s.memo.slots {
		e := s.memo.slots[i].Load()
		if e == nil {
			continue
		}
		taken++
		size, n := len(e.text), e.to
		for ; n.decision == nil; n = n.newest.Load().to {
			size += len(n.ask.name) + len(n.newest.Load().text)
		}
		if size += len(n.decision.Key); size > pathBytes {
			t.Errorf("a path of %d bytes", size)
		}
	}
	if taken < 64 {
		t.Errorf("%d slots are used", taken)
	}
	if loop.root.Load() != nil {
		t.Error("a run with a hundred questions is remembered")
	}
}

// With messages that are never alike little is remembered, and when they become
// alike again, it is soon.
func TestHitScoreFollowsTheHits(t *testing.T) {
	h, decide := remembering(t, "function on_enqueue(msg) return { weight = msg.payload_size % 10 + 1 } end")
	for i := range 20_000 {
		decide(&hook.Message{PayloadSize: i}, nil)
	}
	if h.hitScore >= 0 {
		t.Errorf("hitScore %d after messages that are all different", h.hitScore)
	}
	before := h.Stats(time.Now()).Recalled
	for i := range 4000 {
		decide(&hook.Message{PayloadSize: 1_000_000 + i%4}, nil)
	}
	if n := h.Stats(time.Now()).Recalled - before; n < 3800 {
		t.Errorf("%d of 4000 messages of four kinds are recalled", n)
	}
}

func TestMemoriesAreSharedWithoutHarm(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Memo = 32
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := load(t, s, hook.OnEnqueue, tenantScript(t))
	var group sync.WaitGroup
	for g := range uint64(4) {
		group.Go(func() {
			c := chance{rand.New(rand.NewPCG(1, g))} //nolint:gosec // see above
			for range 3000 {
				tenant, weight := c.of("a", "b", "c", "d", "e", "f", "g", "h"), 1+c.IntN(3)
				msg := &hook.Message{Headers: []storage.Header{{Name: []byte("tenant"), Value: []byte(tenant)}}}
				view := fake{settings: map[string]string{"weight." + tenant: fmt.Sprint(weight)}}
				d, err := h.OnEnqueue(time.Now(), msg, view, hook.Bounds{})
				if err != nil || d.Key != tenant || int(d.Weight) != weight || len(d.Throttles) != 1 || d.Throttles[0] != "tenant:"+tenant {
					t.Errorf("%+v, %v of %s with %d", d, err, tenant, weight)
					return
				}
			}
		})
	}
	group.Wait()
	if st := h.Stats(time.Now()); st.Calls != 12_000 || st.Recalled == 0 {
		t.Errorf("%+v", st)
	}
}
