package commands

import (
	"strconv"
	"time"

	"github.com/faisca/fila/engine"
)

func throttle() Spec {
	return container("FILA.THROTTLE", "fila", "0.1.0", "the commands that manage throttles", throttleDel(), throttleGet(), throttleHistory(), throttleHold(), throttleList(), throttleSet())
}

func throttleSet() Spec {
	return Spec{
		Name: "SET", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of fairness keys that wait for it; for a new throttle and for a pattern O(1), and all fairness keys in slices", Returns: "status",
		Summary: "Limits the messages of all queues that name the throttle: how many are delivered per second, and how many are leased " +
			"at the same time. A key that ends in * is a pattern: each throttle key that begins with what precedes the * has a throttle of its own with these limits, unless it has a setting of its own or a pattern with a longer prefix covers it. Replaces what was set, at once, also for those that wait. RATE is a token bucket that holds BURST tokens, the most that go out at once after a pause: RATE rounded up if it is not given. " +
			"A message takes one token, with BY COST as many as it costs. With ADAPTIVE fewer leases than CONCURRENCY are allowed while work fails, at least MIN, which is 1 if it is not given: " +
			"a lease that expires or is nacked cuts the limit to 0.7 of it unless it began before the last cut, and acks let it grow again. A throttle that is adaptive already keeps its limit.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Args: []Arg{
			{Name: "key", Type: String},
			{Name: "per-second", Type: Double, Token: "RATE", Optional: true},
			{Name: "n", Type: Integer, Token: "BURST", Optional: true},
			{Name: "by", Type: OneOf, Token: "BY", Optional: true, Args: []Arg{{Name: "cost", Type: PureToken, Token: "COST"}}},
			{Name: "n", Type: Integer, Token: "CONCURRENCY", Optional: true},
			{Name: "adaptive", Type: PureToken, Token: "ADAPTIVE", Optional: true},
			{Name: "m", Type: Integer, Token: "MIN", Optional: true},
		},
		Examples: []Example{
			{"FILA.THROTTLE SET provider:x RATE 2.5 BURST 10", "OK"},
			{"FILA.THROTTLE SET tenant:1 CONCURRENCY 4", "OK"},
			{"FILA.THROTTLE SET tokens:x RATE 1500 BURST 90000 BY COST", "OK"},
			{"FILA.THROTTLE SET provider:x CONCURRENCY 50 ADAPTIVE MIN 2", "OK"},
			{"FILA.THROTTLE SET tenant:* RATE 5 BURST 10 CONCURRENCY 4", "OK"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			key, options := in.Text("key"), engine.ThrottleOptions{
				Rate: in.Double("rate"), Burst: in.Natural("burst"), Concurrency: in.Natural("concurrency"),
				ByCost: in.Has("by.cost"), Adaptive: in.Has("adaptive"), Min: in.Natural("min"),
			}
			return answerOK(func(tx *engine.Tx) error { return tx.SetThrottle(key, options) }), nil
		},
	}
}

func throttleDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(N+M) where N is the number of fairness keys that wait for it and M the number of queues; all fairness keys in slices", Returns: "integer",
		Summary: "Removes the limits of a throttle, which has those of a pattern then, if one covers it, or removes a pattern. Returns 1, or 0 if there were none.",
		Flags:   []string{"write"},
		ACL:     []string{"admin"},
		Args:    []Arg{{Name: "key", Type: String}},
		Examples: []Example{
			{"FILA.THROTTLE SET provider:x RATE 2.5", "OK"},
			{"FILA.THROTTLE DEL provider:x", "(integer) 1"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			key := in.Text("key")
			return answerBool(func(tx *engine.Tx) (bool, error) { return tx.DeleteThrottle(key) }), nil
		},
	}
}

func throttleHold() Spec {
	return Spec{
		Name: "HOLD", Group: "fila", Since: "0.1.1", Complexity: "O(log(N)) where N is the number of holds, at most limits.holds", Returns: "status",
		Summary: "Holds a throttle, whether it has limits or not: no message that names it is delivered for that long. Of two holds the later end counts; 0 opens it. " +
			"A hold outlives a restart and a failover. With limits.holds of them, the one that ends first ends.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Args:  []Arg{{Name: "key", Type: String}, {Name: "ms", Type: Integer, Max: millisMax}},
		Examples: []Example{
			{"FILA.THROTTLE HOLD provider:x 30000", "OK"},
			{"FILA.THROTTLE HOLD provider:x 0", "OK"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			key, d := in.Text("key"), in.Millis("ms", 0)
			return answerOK(func(tx *engine.Tx) error { return tx.Hold(key, d) }), nil
		},
	}
}

func throttleGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "map or nil",
		Summary: "Returns the limits and counters of a throttle or a pattern; nil if nothing limits or holds it.",
		Flags:   []string{"readonly", "fast"},
		Reply: "A map: " + throttleFields(&engine.ThrottleInfo{}).names() + ". rate, burst and concurrency are nil if not set; " +
			"tokens is what may go out at once, below 0 after a message that took more than the burst; held counts leases, waiting the fairness keys that could deliver if it had room, without paused ones and those of paused queues; passed and refused count messages let " +
			"through and tries that were not; waited_ms is what all keys have waited together; next_at is when the tokens for the next message come, nil if no key waits for tokens; by_cost is 1 if a message takes its cost in tokens; " +
			"min, limit and cuts are nil unless it is adaptive: limit is what it allows now, of which the whole part counts, from min to concurrency, and cuts how many failures have cut it since it was set or the broker has started; " +
			"pattern is the pattern whose limits the throttle has, nil if it has a setting of its own; instances is nil but for a pattern: how many of its throttles are in memory; held_until is until when FILA.THROTTLE HOLD holds it, else nil. " +
			"The counters of a pattern are sums over all of its throttles, its waiting counts the keys that they have stopped, its tokens are those of a new one. A throttle of a pattern that is not in memory is shown as a new one.",
		Args: []Arg{{Name: "key", Type: String}},
		Examples: []Example{
			{"FILA.THROTTLE GET provider:x", "(nil)"},
			{"FILA.THROTTLE SET provider:x RATE 2.5 BURST 10", "OK"},
			{"FILA.THROTTLE GET provider:x", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			key := in.Text("key")
			return answerMapOrNil(func(tx *engine.Tx) (engine.ThrottleInfo, bool) { return tx.Throttle(key) }, throttleFields), nil
		},
	}
}

func throttleFields(t *engine.ThrottleInfo) *fields {
	f := newFields()
	f.text("key", t.Key)
	if t.Rate > 0 {
		f.double("rate", t.Rate)
	} else {
		f.optional("rate", "")
	}
	f.limit("burst", t.Burst)
	f.limit("concurrency", t.Concurrency)
	f.ratio("tokens", t.Tokens)
	f.number("held", t.InUse)
	f.number("waiting", t.Waiting)
	f.count("passed", t.Admitted)
	f.count("refused", t.Refused)
	f.millis("waited_ms", t.Waited)
	f.due("next_at", t.NextAt)
	f.flag("by_cost", t.ByCost)
	f.limit("min", t.Min)
	f.rate("limit", t.Limit)
	if t.Min == 0 {
		f.optional("cuts", "")
	} else {
		f.count("cuts", t.Cuts)
	}
	f.optional("pattern", t.Pattern)
	if t.IsPattern {
		f.number("instances", t.Instances)
	} else {
		f.optional("instances", "")
	}
	f.due("held_until", t.HeldUntil)
	return f
}

// blockerFields describes a throttle that does not admit a message.
func blockerFields(b *engine.Blocker) *fields {
	var f fields
	f.text("throttle", b.Throttle)
	f.number("in_use", b.InUse)
	f.limit("concurrency", b.Concurrency)
	f.rate("rate", b.Rate)
	f.due("next_token_at", b.NextAt)
	f.flag("kept", b.Reserved)
	f.limit("need", uint64(b.Need))
	f.flag("saved", b.Saved)
	f.limit("limit", uint64(b.Limit))
	f.optional("pattern", b.Pattern)
	f.due("held_until", b.HeldUntil)
	return &f
}

func throttleList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT", Returns: pageOfMaps,
		Summary: "Returns the throttles that have settings of their own, those that nothing limits and that are held, and patterns, a page at a time; with MATCH also, after them, the throttles of patterns that are in memory, of which the held ones are some.",
		Flags:   []string{"readonly"},
		Reply:   pageReply + "A throttle is a map as in FILA.THROTTLE GET.",
		Args:    append([]Arg{}, pageOptions()...),
		Examples: []Example{
			{"FILA.THROTTLE LIST", "1) \"0\"\n2) (empty array)"},
			{"FILA.THROTTLE SET provider:x RATE 2.5 BURST 10", "OK"},
			{"FILA.THROTTLE LIST MATCH provider:* COUNT 100", "..."},
		},
		Room:   pageOf[engine.ThrottleInfo](1, 0),
		Memory: "700 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			p := parsePage(in)
			return answerPage(func(tx *engine.Tx) (uint64, []engine.ThrottleInfo, error) {
				next, list := tx.Throttles(p.cursor, p.count, !p.all, p.match)
				return next, list, nil
			}, throttleFields), nil
		},
	}
}

func throttleHistory() Spec {
	return Spec{
		Name: "HISTORY", Group: "fila", Since: "0.1.1", Complexity: "O(1)", Returns: "array of map",
		Summary: "Returns what a throttle, or the throttles of a pattern together, did lately.",
		Flags:   []string{"readonly", "fast"},
		Reply: "An array of moments, the oldest first, each a map: " + throttleMomentFields(&engine.ThrottleMoment{}).names() + ". " +
			"RANGE is how far it goes back, in seconds (600), an hour at most. Moments are as in FILA.HISTORY, also over restarts; counters begin when the throttle is followed, " +
			"and held and waiting are leases that name it and keys that wait for it, as in FILA.THROTTLE GET. At most " + strconv.Itoa(engine.ThrottleHistories) +
			" throttles have a history: those that are set while there is room, and any that was asked for in the last five minutes, from then on.",
		Args: []Arg{
			{Name: "key", Type: String},
			{Name: "seconds", Type: Integer, Token: "RANGE", Optional: true, Min: 1, Max: int64(engine.HistoryMax / time.Second)},
		},
		Examples: []Example{
			{"FILA.THROTTLE SET provider:x RATE 2.5", "OK"},
			{"FILA.THROTTLE HISTORY provider:x RANGE 3600", "..."},
		},
		Room:   always(engine.MomentsMax * sizeOf[engine.ThrottleMoment]() * historyCopies),
		Memory: "20 KiB",
		Parse: func(_ *Session, in *input) (call, error) {
			key, last := in.Text("key"), time.Duration(in.Integer("range", historySeconds))*time.Second
			return answerMaps(func(tx *engine.Tx) ([]engine.ThrottleMoment, error) { return tx.ThrottleHistory(key, last) }, throttleMomentFields), nil
		},
	}
}

func throttleMomentFields(m *engine.ThrottleMoment) *fields {
	f := newFields()
	f.at("at", m.At)
	f.count("passed", m.Passed)
	f.count("refused", m.Refused)
	f.number("held", m.Leases)
	f.number("waiting", m.Waiting)
	return f
}
