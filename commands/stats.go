package commands

import (
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/ops/metrics"
	"github.com/faisca/fila/resp"
)

func stats() Spec {
	return Spec{
		Name: "FILA.STATS", Group: "fila", Since: "0.1.0",
		Complexity: "O(N) where N is the number of the queue's fairness keys with messages, for oldest_ms, in slices; without a queue O(1)",
		Returns:    "map",
		Summary:    "Returns counters and gauges of a queue, or of all of them and the engine.",
		Flags:      []string{"readonly"},
		Access:     Look,
		Reply: "A map. Of a queue: " + (&queueStatsCall{}).fields().names() + ". Of all: " + engineFields(&engine.Stats{}).names() +
			". What counts events starts at 0 with the broker and never decreases; queues that were deleted stay counted in the sums of all. " +
			"undelivered are those of delivered that never reached a client, rounds those of the scheduler; dead_... are the parts of dead_lettered. busiest_keys are at most ten fairness keys that have had deliveries, each a map: " + busyFields(&engine.BusyKey{}).names() +
			"; other_keys is the sum of all others, a map of the same without the key. " +
			"signals are pairs of subject and name, signals_evicted those that made room for others at limits.signals. " +
			"memory_used and memory_limit are bytes of Go's memory, 0 without a limit; while memory_full is 1, commands that store something new are refused with OOM. " +
			"memory_held is what fairness keys, messages and payloads take of it, at least. " +
			"keys_without_credit are fairness keys that have come up and that a budget did not cover, see docs/explanation/budgets.md. " +
			"results are those stored since the start, result_waits the requests that wait for one. replaced counts messages whose place another has taken, by REPLACE; these are not in enqueued. published counts messages to topics, unmatched those that met no binding, copies what queues have stored of them. " +
			"redrive_... tell of the FILA.REDRIVE of a dead-letter queue that runs or was the last; redrive_to is nil for back to where each came from, redrive_error and redrive_from for messages of any error and queue; redrive_causes are those of its CAUSE, none for any; redrive_search is 1 if it has conditions beyond those, such as HEADER or ID; redrive_looked counts also those that were not to be moved, redrive_taken those of redrive_skipped whose UNIQUE id another message has taken. " +
			"state is that of the queue's ready messages, a word of FILA.KEYS: what stops one of them comes before what only lacks a consumer. reason says which part of them is stopped, by what and how long, or why the next one is not delivered.",
		Args: []Arg{{Name: "queue", Type: Key, Optional: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.STATS orders", "..."},
			{"FILA.STATS", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			if in.Has("queue") {
				return &queueStatsCall{name: in.Text("queue")}, nil
			}
			return answerMap(statsOf, engineFields), nil
		},
	}
}

type queueStatsCall struct {
	name   string
	counts engine.Counts
	now    time.Time
	survey engine.Survey
	looked bool
	state  engine.QueueState
	oldest time.Time
	top    []engine.BusyKey
	rest   engine.BusyKey
	moving engine.RedriveInfo
}

// Preflight implements engine.Preflighter, so that the counts are exact.
func (c *queueStatsCall) Preflight(tx *engine.Tx) error { return tx.AwaitCounts() }

// Apply implements engine.Call.
func (c *queueStatsCall) Apply(tx *engine.Tx) (err error) {
	if err := c.Preflight(tx); err != nil {
		return err
	}
	c.now, c.survey.Queue = tx.Now(), c.name
	if !c.looked { // else only the later steps run again after a wait
		if c.state, c.oldest, err = tx.Survey(&c.survey); err != nil {
			return err
		}
		c.looked = true
	}
	if c.top, c.rest, err = tx.BusiestKeys(c.name); err != nil {
		return err
	}
	if c.counts, err = tx.QueueStats(c.name); err != nil {
		return err
	}
	c.moving, err = tx.RedriveInfo(c.name)
	return err
}

// Render writes a map.
func (c *queueStatsCall) Render(_ *Handler, w *resp.Writer) error {
	c.fields().write(w)
	return nil
}

func (c *queueStatsCall) fields() *fields {
	var f fields
	f.text("name", c.name)
	f.counts(&c.counts)
	top := make([]fields, len(c.top))
	for i := range c.top {
		top[i] = *busyFields(&c.top[i])
	}
	f.groups("busiest_keys", top)
	f.group("other_keys", (*busyFields(&c.rest))[1:]) // the sum has no name
	f.removed(&c.counts)
	f.flag("redrive_running", c.moving.Running)
	f.number("redrive_moved", c.moving.Moved)
	f.number("redrive_skipped", c.moving.Skipped)
	f.optional("redrive_to", c.moving.To)
	f.limit("redrive_rate", uint64(c.moving.Rate))
	f.at("redrive_started_at", c.moving.StartedAt)
	f.age("oldest_ms", c.now, c.oldest)
	f.number("redrive_looked", c.moving.Looked)
	if c.moving.Error == nil {
		f.optional("redrive_error", "")
	} else {
		f.text("redrive_error", *c.moving.Error)
	}
	f.optional("redrive_from", c.moving.From)
	f.others(&c.counts)
	f.number("redrive_taken", c.moving.Taken)
	f.results(&c.counts)
	f.state(&c.state)
	f.count("replaced", c.counts.Replaced)
	f.texts("redrive_causes", c.moving.Causes)
	f.flag("redrive_search", c.moving.Search)
	return &f
}

func busyFields(k *engine.BusyKey) *fields {
	var f fields
	f.text("key", k.Key)
	f.count("delivered", k.Delivered)
	f.count("passed", k.Admitted)
	f.count("refused", k.Refused)
	f.millis("waited_ms", k.Waited)
	return &f
}

// statsOf returns the figures of the engine.
func statsOf(tx *engine.Tx) (engine.Stats, error) { return tx.Stats(), nil }

// engineFields returns the counts of all queues together, then those of the engine.
func engineFields(s *engine.Stats) *fields {
	var f fields
	f.engine(s)
	f.removed(&s.Counts)
	f.others(&s.Counts)
	f.number("signals", s.Signals)
	f.count("signals_evicted", s.SignalsEvicted)
	f.number("budgets", s.Budgets)
	f.number("keys_without_credit", s.Held)
	f.results(&s.Counts)
	f.topics(&s.Topics)
	f.number("memory_used", s.Memory.Used)
	f.number("memory_limit", s.Memory.Limit)
	f.flag("memory_full", s.Memory.Full)
	f.number("memory_held", s.InUse)
	f.count("replaced", s.Replaced)
	return &f
}

func metricsCommand() Spec {
	return Spec{
		Name: "FILA.METRICS", Group: "fila", Since: "0.1.0",
		Complexity: "O(N+K+T) where N is the number of queues, K of fairness keys with messages and T of throttles, in slices",
		Returns:    "string",
		Summary: "Returns the figures of the broker for Prometheus: what /metrics of the admin listener answers, and with the same right. TEXT is for people, too; " +
			"OPENMETRICS and PROTOBUF are what other scrapers ask for, the latter with native histograms. docs/reference/metrics.md lists the metrics.",
		Flags: []string{"readonly", "no_multi"},
		Reply: "A string in the format. A user sees the queues that it has a right to, and the sum of the others (queue=\"\") if it has a right to all; throttles and budgets if it may run FILA.THROTTLE LIST and FILA.BUDGET LIST.",
		Args: []Arg{{Name: "format", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "text", Type: PureToken, Token: string(metrics.Text)},
			{Name: "openmetrics", Type: PureToken, Token: string(metrics.OpenMetrics)},
			{Name: "protobuf", Type: PureToken, Token: string(metrics.Protobuf)},
		}}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.METRICS", "..."},
		},
		Room:   metricsRoom,
		Memory: "2 MiB, and twice the last answer",
		Parse:  parseMetrics,
	}
}

func parseMetrics(s *Session, in *input) (call, error) {
	c := &metricsCall{Scrape: s.handler.cfg.Metrics.Scrape(), format: metrics.Text, user: in.User}
	for _, f := range []metrics.Format{metrics.OpenMetrics, metrics.Protobuf} {
		if in.Has(strings.ToLower(string(f))) {
			c.format = f
		}
	}
	return c, nil
}

type metricsCall struct {
	*metrics.Scrape
	format metrics.Format
	user   *acl.User // that asks; nil: it has every right
}

// Render writes the text.
func (c *metricsCall) Render(h *Handler, w *resp.Writer) error {
	var rights *metrics.Rights
	if c.user != nil {
		runs := func(name string) bool { return c.user.MayRun(h.table.Resolve([]byte(name)).Index) }
		rights = &metrics.Rights{Throttles: runs("fila.throttle|list"), Budgets: runs("fila.budget|list")}
		if !c.user.EveryQueue() {
			rights.Queue = func(queue string) bool { return c.user.May(acl.Look, queue) }
		}
	}
	text, err := c.Write(c.format, h.figures(), rights)
	if err != nil {
		return err
	}
	w.Bulk(text)
	return nil
}

// figures returns what commands and connections show in metrics.
func (h *Handler) figures() *metrics.Server {
	n := h.counters()
	channels, patterns := h.hub.Size()
	f := &metrics.Server{
		Errors: h.calls.AllErrors(), Connections: int64(n.Connected), ConnectionsLimit: int64(h.cfg.MaxClients),
		Subscriptions: int64(channels) + int64(patterns), Accepted: n.Accepted, Rejected: n.Rejected, BytesIn: n.BytesIn, BytesOut: n.BytesOut,
		Denials: h.denied.Counts(), Node: h.nodes.cluster != nil, Forwarded: h.nodes.forwarded.Load(),
	}
	for _, c := range h.table.All {
		t := h.calls.All(c.Index)
		if t.Calls+t.Rejected > 0 {
			f.Commands = append(f.Commands, metrics.Command{Name: c.Name, Took: &t.Took, Failed: t.Failed, Rejected: t.Rejected, Slow: t.Slow})
		}
	}
	// What alerts and dashboards look at is there before it happens: a counter that appears with
	// its first event shows no increase.
	for _, reason := range []string{acl.DeniedCommand, acl.DeniedQueue, acl.DeniedChannel} {
		f.Denials[reason] += 0
	}
	for _, c := range wireCodes() {
		f.Errors[c.code] += 0
	}
	f.AuthFailures = f.Denials[acl.DeniedAuth]
	delete(f.Denials, acl.DeniedAuth)
	f.Turns, f.Commits = h.latency.Durations()
	if h.cfg.Disk != nil {
		f.StoreBytes, f.StoreFree = h.cfg.Disk()
	}
	return f
}

func explain() Spec {
	return Spec{
		Name: "FILA.EXPLAIN", Group: "fila", Since: "0.1.0", Complexity: "O(1); if a throttle is full or the message is ready, O(L) where L is the number of leases, in slices; the N messages before it are counted off-loop in O(N)",
		Returns: "map",
		Summary: "Explains why a message, or the next message of a fairness key, is not delivered: what it waits for, until when, and which leases block it.",
		Flags:   []string{"readonly"},
		Access:  Look,
		Reply: "A map, of a key: " + explainFields(&engine.Explanation{}, time.Time{}).names() + "; of a message: " +
			explainFields(&engine.Explanation{Message: &engine.MessageInfo{}}, time.Time{}).names() +
			". state is as in FILA.KEYS, reason says it in a sentence. holders are leases that fill a throttle, at most ten of holder_count, without those in queues that the user has no right to, " +
			"each a map: " + holderFields(&engine.Holder{}).names() + ". blocked_by are the throttles that do not admit the next message of the key " +
			"now, each a map: " + blockerFields(&engine.Blocker{}).names() + "; concurrency is nil where places are free, rate and next_token_at are nil " +
			"where the tokens are there, kept is 1 where what is free is kept for a message that needs several throttles, need is what the message takes of a throttle by cost, else nil, saved is 1 where the tokens are there and accumulate for a message that comes before, limit is how many leases an adaptive throttle allows now where no place is free, else nil. position counts the ready messages of the key that come first, -1 where that is not known.",
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "what", Type: OneOf, Args: []Arg{
				{Name: "fairness-key", Type: String, Token: "KEY"},
				{Name: "id", Type: String},
			}},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.EXPLAIN orders KEY tenant-1", "..."},
			{"FILA.LEASE orders", "..."},
			{"FILA.EXPLAIN orders <receipt>", "..."},
		},
		Room:   always(aloneRoom),
		Memory: "known only when it is executed, which is when no reply precedes it",
		Parse:  parseExplain,
	}
}

func parseExplain(_ *Session, in *input) (call, error) {
	if in.Has("key") {
		req := engine.ExplainKey{Queue: in.Text("queue"), Key: in.Text("key")}
		return answerExplanation(in.User, func(tx *engine.Tx) (engine.Explanation, error) { return tx.ExplainKey(&req) }), nil
	}
	r, err := engine.ParseReceipt(in.Bytes("id"))
	if err != nil {
		return nil, err
	}
	req := engine.Explain{Queue: in.Text("queue"), ID: r.ID}
	return answerExplanation(in.User, func(tx *engine.Tx) (engine.Explanation, error) { return tx.Explain(&req) }), nil
}

// answerExplanation answers why something waits, with the holders in queues that the user has a right to.
func answerExplanation(user *acl.User, take func(tx *engine.Tx) (engine.Explanation, error)) call {
	now := time.Time{}
	return answerMap(func(tx *engine.Tx) (engine.Explanation, error) {
		now = tx.Now()
		return take(tx)
	}, func(e *engine.Explanation) *fields {
		e.Holders = slices.DeleteFunc(e.Holders, func(h engine.Holder) bool { return !user.May(acl.Look, h.Queue) })
		return explainFields(e, now)
	})
}

// explainFields returns the reason of the wait, then the state of the message, then that of its key.
func explainFields(e *engine.Explanation, now time.Time) *fields {
	var f fields
	f.text("state", e.State.String())
	f.optional("reason", e.Reason)
	f.optional("throttle", e.Throttle)
	readyAt := e.ReadyAt
	if m := e.Message; m != nil && readyAt.IsZero() {
		readyAt = m.ReadyAt
	}
	f.due("ready_at", readyAt)
	holders := make([]fields, len(e.Holders))
	for i := range e.Holders {
		holders[i] = *holderFields(&e.Holders[i])
	}
	f.groups("holders", holders)
	f.number("holder_count", e.HolderCount)
	m := e.Message
	if m != nil {
		f.text("id", m.ID.String())
		f.text("status", m.Status)
		f.number("attempt", int64(m.Attempt))
		f.number("deliveries", int64(m.Deliveries))
		f.at("enqueued_at", m.EnqueuedAt)
		f.at("lease_until", m.LeaseUntil)
		f.optional("consumer", m.Consumer)
		f.number("position", m.Position)
	}
	f.text("key", e.Key)
	f.keyFigures(&e.KeyInfo)
	f.age("oldest_ms", now, e.OldestAt)
	f.keyCounters(&e.KeyInfo)
	f.text("queue", e.Queue)
	if m != nil {
		f.attributes(&m.Meta, "cost")
		f.texts("throttles", m.Throttles)
	}
	blockers := make([]fields, len(e.BlockedBy))
	for i := range e.BlockedBy {
		blockers[i] = *blockerFields(&e.BlockedBy[i])
	}
	f.groups("blocked_by", blockers)
	if m != nil {
		f.attributes(&m.Meta, "expires_at", "budgets")
	}
	f.lack(e.Lacks)
	if m != nil && m.ID == e.WaitsFor {
		f.optional("waits_for", "") // it is out itself
	} else {
		f.waitsFor(&e.KeyInfo)
	}
	return &f
}

func holderFields(h *engine.Holder) *fields {
	var f fields
	f.text("id", h.ID.String())
	f.text("queue", h.Queue)
	f.text("key", h.Key)
	f.optional("consumer", h.Consumer)
	f.at("lease_until", h.Until)
	return &f
}
