package commands

import (
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/resp"
)

func scriptTest() Spec {
	return Spec{
		Name: "TEST", Group: "fila", Since: "0.1.0", Complexity: "O(1); the connection runs the script within its limits", Returns: "map",
		Summary: "Runs a hook of a queue, or SOURCE in its place, with a message made of the options, and changes nothing: no message, no statistics. " +
			"A script that fails is refused with its line.",
		Reply: "A map. ON_ENQUEUE: " + (&scriptTestCall{}).fields(&hook.Trial{}).names() + ". ON_FAILURE: " +
			(&scriptTestCall{hookFind: hookFind{kind: hook.OnFailure}}).fields(&hook.Trial{}).names() + ". What the script has not decided is nil.",
		Flags: []string{"readonly"}, Access: Look,
		Args: hookArgs(slices.Concat([]Arg{
			{Name: "source", Type: String, Token: "SOURCE", Optional: true},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "n", Type: Integer, Token: "WEIGHT", Optional: true, Min: 1, Max: math.MaxUint32},
		}, hookedArgs(), []Arg{
			{Name: "n", Type: Integer, Token: "PAYLOADSIZE", Optional: true, Max: math.MaxInt32},
			{Name: "n", Type: Integer, Token: "ATTEMPT", Optional: true, Min: 1, Max: math.MaxUint32},
			{Name: "text", Type: String, Token: "ERROR", Optional: true},
		})...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{`FILA.SCRIPT TEST orders ON_FAILURE SOURCE "function on_failure(msg) return { delay_ms = msg.attempts * 100 } end" ATTEMPT 3`, ` 1) "action"
 2) (nil)
 3) "delay_ms"
 4) (integer) 300
 5) "time_us"
 6) (integer) <n>
 7) "instructions"
 8) (integer) <n>
 9) "memory_bytes"
10) (integer) <n>
11) "hold"
12) (nil)
13) "cause"
14) (nil)`},
			{`FILA.SCRIPT TEST orders ON_ENQUEUE SOURCE "function on_enqueue(msg) return msg.headers.tier.name end"`, "..."},
		},
		Room:   sized("source", scriptCopies),
		Memory: "32 times the source, of at most `limits.script_bytes`",
		Parse:  parseScriptTest,
	}
}

// scriptTestCall runs a hook when its reply is rendered: earlier commands have taken effect by then,
// and only its own connection is delayed.
type scriptTestCall struct {
	hookFind
	given  bool   // a source is given, instead of the queue's hook
	source string // the given source
	own    hook.Hook
	msg    hook.Message
	size   int
}

func parseScriptTest(_ *Session, in *input) (call, error) {
	c := &scriptTestCall{given: in.Has("source"), source: string(in.Bytes("source"))}
	c.queue, c.kind = in.Text("queue"), hookKind(in)
	c.msg = hook.Message{
		Queue: c.queue, Key: engine.DefaultKey, PayloadSize: int(in.Integer("payloadsize", 0)),
	}
	if in.Has("key") {
		c.msg.Key = in.Text("key")
	}
	var req engine.Enqueue
	parseHooked(in, &req)
	c.msg.Headers, c.msg.Meta = req.Headers, req.Meta
	c.msg.Weight, c.msg.Charge = uint32(in.Integer("weight", 1)), 1
	if req.Charge != nil {
		c.msg.Charge = *req.Charge
	}
	if c.kind == hook.OnFailure {
		c.msg.ID, c.msg.Error = engine.ID{}.String(), string(in.Bytes("error"))
		c.msg.Attempts = uint32(in.Integer("attempt", 1))
	} else if in.Has("attempt") || in.Has("error") {
		return nil, command.Refuse("ERR", "ATTEMPT and ERROR go with ON_FAILURE only")
	}
	c.size = in.Size()
	return c, nil
}

// Prepare compiles the given source on the connection.
func (c *scriptTestCall) Prepare(s *Session) (err error) {
	if c.given {
		by := s.loadsInto(c.queue)
		by.Trial = true
		c.own, err = s.compile(by, c.kind, c.source)
	}
	return err
}

// Bytes implements weigher.
func (c *scriptTestCall) Bytes() int { return c.size }

// Render runs the script and writes a map.
func (c *scriptTestCall) Render(h *Handler, w *resp.Writer) error {
	hook := c.info.Hook
	if c.given {
		hook = c.own
	}
	if hook == nil {
		return command.Refuse("INVALID", "the queue has no "+c.kind.String()+" hook, load one with FILA.SCRIPT LOAD or give a SOURCE")
	}
	now := h.engine.Snapshot()
	t := hook.Try(&c.msg, now.View(h.cfg.Now()), now.Bounds(c.queue))
	if t.Err != nil {
		return command.Refuse("LUA", t.Err.Error())
	}
	c.fields(&t).write(w)
	return nil
}

func (c *scriptTestCall) fields(t *hook.Trial) *fields {
	var f fields
	if c.kind == hook.OnFailure {
		f.failure(&t.Failure)
	} else {
		f.enqueue(&t.Enqueue)
	}
	f.micros("time_us", t.Duration)
	f.number("instructions", t.Instructions)
	f.number("memory_bytes", t.Memory)
	if c.kind == hook.OnEnqueue {
		f.list("budgets", t.Enqueue.Budgets)
		f.amount("charge", t.Enqueue.Charge)
		f.given("max_attempts", t.Enqueue.Retry.MaxAttempts)
		f.given("backoff_ms", t.Enqueue.Retry.Backoff)
		f.given("max_backoff_ms", t.Enqueue.Retry.MaxBackoff)
	} else {
		f.holds(t.Failure.Holds)
		f.optional("cause", t.Failure.Cause)
	}
	return &f
}

func (f *fields) enqueue(d *hook.EnqueueDecision) {
	f.optional("fairness_key", d.Key)
	f.limit("weight", uint64(d.Weight))
	f.list("throttle_keys", d.Throttles)
	f.limit("cost", uint64(d.Cost))
	if d.Priority == nil {
		f.optional("priority", "")
	} else {
		f.number("priority", int64(*d.Priority))
	}
	f.delay(d.Delay)
}

// list adds an array of strings, or nil if the script leaves it to the producer.
func (f *fields) list(name string, texts []string) {
	if texts == nil {
		f.optional(name, "")
		return
	}
	f.texts(name, texts)
}

func (f *fields) failure(d *hook.FailureDecision) {
	switch d.Action {
	case hook.FailureRetry:
		f.text("action", "retry")
	case hook.FailureDead:
		f.text("action", "dlq")
	default:
		f.optional("action", "")
	}
	f.delay(d.Delay)
}

// holds adds for how long throttles are held, or nil if the script holds none.
func (f *fields) holds(holds []engine.HoldFor) {
	if len(holds) == 0 {
		f.optional("hold", "")
		return
	}
	var each fields
	for _, h := range holds {
		each.millis(h.Key, h.For)
	}
	*f = append(*f, field{name: "hold", more: each, kind: fieldMore})
}

// delay adds a duration, or nil if the script leaves it to the queue.
func (f *fields) delay(d *time.Duration) {
	if d == nil {
		f.optional("delay_ms", "")
		return
	}
	f.millis("delay_ms", *d)
}
