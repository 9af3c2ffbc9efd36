package commands

import (
	"math"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
)

func key() Spec {
	return container("FILA.KEY", "fila", "0.1.0", "the commands that manage a fairness key of a queue", keyDel(), keyGet(), keyPause(), keyResume(), keySet())
}

func keyArgs(more ...Arg) []Arg {
	return append([]Arg{{Name: "queue", Type: Key}, {Name: "key", Type: String}}, more...)
}

func keySet() Spec {
	return Spec{
		Name: "SET", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "status",
		Summary: "Sets the weight of a fairness key, which applies to the whole backlog from the key's next turn on, " +
			"and how many messages it may have, in place of the queue's KEYMAXDEPTH; 0 goes back to that. Both are kept when the key is empty.",
		Flags: []string{"write", "denyoom", "fast"},
		ACL:   []string{"admin"},
		Args: keyArgs(Arg{Name: "n", Type: Integer, Token: "WEIGHT", Optional: true, Min: math.MinInt64},
			Arg{Name: "n", Type: Integer, Token: "MAXDEPTH", Optional: true}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY SET orders tenant-1 WEIGHT 3", "OK"},
			{"FILA.KEY SET orders tenant-2 MAXDEPTH 1000", "OK"},
		},
		Parse: func(s *Session, in *input) (call, error) {
			if !in.Has("weight") && !in.Has("maxdepth") {
				return nil, command.Refuse("ERR", "nothing to set, usage: "+in.Cmd.UsageLine())
			}
			queue, key, o := in.Text("queue"), in.Text("key"), engine.KeyOptions{}
			weight, err := atLeastOne(in, "WEIGHT", "weight", s.handler.cfg.Limits.Weight)
			if in.Has("weight") {
				o.Weight = &weight
			}
			if in.Has("maxdepth") {
				o.MaxDepth = new(uint64(in.Integer("maxdepth", 0)))
			}
			return answerOK(func(tx *engine.Tx) error { return tx.SetKey(queue, key, o) }), err
		},
	}
}

func keyPause() Spec {
	return Spec{
		Name: "PAUSE", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "status",
		Summary: "Pauses deliveries of a fairness key. It still accepts messages, and live leases continue.",
		Flags:   []string{"write", "denyoom", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.KEY PAUSE orders tenant-1", "OK"},
			{"FILA.LEASE orders", "(empty array)"},
		},
		Parse: parseKeyPause(true),
	}
}

func keyResume() Spec {
	return Spec{
		Name: "RESUME", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "status",
		Summary: "Resumes deliveries of a paused fairness key.",
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY PAUSE orders tenant-1", "OK"},
			{"FILA.KEY RESUME orders tenant-1", "OK"},
		},
		Parse: parseKeyPause(false),
	}
}

func parseKeyPause(paused bool) func(*Session, *input) (call, error) {
	return func(_ *Session, in *input) (call, error) {
		queue, key := in.Text("queue"), in.Text("key")
		return answerOK(func(tx *engine.Tx) error { return tx.PauseKey(queue, key, paused) }), nil
	}
}

func keyDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Resets the settings of a fairness key (weight 1, not paused, as many messages as its queue says), not its messages. Returns 1, or 0 if it had none.",
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY SET orders tenant-1 WEIGHT 3", "OK"},
			{"FILA.KEY DEL orders tenant-1", "(integer) 1"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			queue, key := in.Text("queue"), in.Text("key")
			return answerBool(func(tx *engine.Tx) (bool, error) { return tx.ResetKey(queue, key) }), nil
		},
	}
}

func keyGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "map",
		Summary: "Returns the settings and figures of a fairness key, even if it has no messages.",
		Reply:   "A map as in FILA.KEYS.",
		Flags:   []string{"readonly", "fast"},
		Access:  Look,
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY GET orders tenant-1", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			queue, key, now := in.Text("queue"), in.Text("key"), time.Time{}
			return answerMap(func(tx *engine.Tx) (engine.KeyInfo, error) {
				now = tx.Now()
				return tx.Key(queue, key)
			}, func(k *engine.KeyInfo) *fields { return keyFields(k, now) }), nil
		},
	}
}

func keys() Spec {
	return Spec{
		Name: "FILA.KEYS", Group: "fila", Since: "0.1.0",
		Complexity: "O(N) where N is COUNT, in slices; with BY also the sweep of FILA.FIGURES",
		Returns:    pageOfMaps,
		Summary:    "Returns the fairness keys of a queue with their figures, a page at a time.",
		Flags:      []string{"readonly"},
		Access:     Look,
		Reply: pageReply + "A key is a map: " + keyFields(&engine.KeyInfo{}, time.Time{}).names() + ". " +
			"share and fair_share are parts of 1, over the last minute; state is " + stateWords() + ", and reason says why; waits_for is the message of an ordered queue that is out: leased, or waiting for its next attempt; budget is the one that does not cover the next message, with its charge and what is available; ready_at says until when, where that is known; counting is 1 while the depth is still being counted; " +
			"blocked_by lists the throttles that do not admit the next message now, of which throttle is the first. " +
			"With BY these are the first keys of the queue in an order, at most 100, as they are now: by messages, by how long the first message is ready, " +
			"by deliveries since the start of the broker, or by how far share is below fair_share, of keys that no throttle stops. The order is that of a sweep over all keys, " +
			"at most admin.figures_ms old; MATCH selects among these keys, and the next cursor is always 0.",
		Args: append(append([]Arg{{Name: "queue", Type: Key}}, pageOptions()...),
			Arg{Name: "order", Type: OneOf, Token: "BY", Optional: true, Args: []Arg{
				{Name: "depth", Type: PureToken, Token: "DEPTH"},
				{Name: "age", Type: PureToken, Token: "AGE"},
				{Name: "delivered", Type: PureToken, Token: "DELIVERED"},
				{Name: "behind", Type: PureToken, Token: "BEHIND"},
			}}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEYS orders", "1) \"0\"\n2) (empty array)"},
			{"FILA.KEYS orders COUNT 3 BY DEPTH", "1) \"0\"\n2) (empty array)"},
			{"FILA.ENQUEUE orders hello KEY tenant-1 WEIGHT 3", `"<id>"`},
			{"FILA.KEYS orders MATCH tenant-* COUNT 100", "..."},
		},
		Room:   pageOf[engine.KeyInfo](2, tinyRoom),
		Memory: "1,750 bytes for each key of COUNT (17 MiB at 10,000)",
		Parse:  parseKeys,
	}
}

func parseKeys(_ *Session, in *input) (call, error) {
	p, queue, now := parsePage(in), in.Text("queue"), time.Time{}
	show := func(k **engine.KeyInfo) *fields { return keyFields(*k, now) }
	for by, slot := range [engine.Orders]string{
		engine.ByDepth: "by.depth", engine.ByAge: "by.age", engine.ByDelivered: "by.delivered", engine.ByBehind: "by.behind",
	} {
		if in.Has(slot) {
			if p.cursor != 0 {
				return nil, command.Refuse("ERR", "BY shows the first keys in that order, it does not go with CURSOR")
			}
			top := engine.TopKeys{Queue: queue, By: engine.Order(by), Count: p.count, Match: p.match}
			return answerPage(func(tx *engine.Tx) (uint64, []*engine.KeyInfo, error) {
				now = tx.Now()
				list, err := tx.TopKeys(&top)
				return 0, list, err
			}, show), nil
		}
	}
	req := engine.Keys{Queue: queue, Cursor: p.cursor, Count: p.count, Match: p.match}
	return answerPage(func(tx *engine.Tx) (uint64, []*engine.KeyInfo, error) {
		now = tx.Now()
		return tx.Keys(&req)
	}, show), nil
}

func keyFields(k *engine.KeyInfo, now time.Time) *fields {
	f := newFields()
	f.text("key", k.Key)
	f.keyFigures(k)
	f.text("state", k.State.String())
	f.due("ready_at", k.ReadyAt)
	f.age("oldest_ms", now, k.OldestAt)
	f.optional("reason", k.Reason)
	f.optional("throttle", k.Throttle)
	f.keyCounters(k)
	names := make([]string, len(k.BlockedBy))
	for i := range k.BlockedBy {
		names[i] = k.BlockedBy[i].Throttle
	}
	f.texts("blocked_by", names)
	f.lack(k.Lacks)
	f.waitsFor(k)
	f.count("max_depth", k.MaxDepth)
	return f
}

func (f *fields) keyFigures(k *engine.KeyInfo) {
	f.number("depth", k.Depth)
	f.number("leased", k.Leased)
	f.number("delayed", k.Delayed)
	f.number("weight", int64(k.Weight))
	f.number("deficit", k.Deficit)
	f.count("delivered", k.Delivered)
	f.ratio("share", k.Share)
	f.ratio("fair_share", k.FairShare)
}

func (f *fields) keyCounters(k *engine.KeyInfo) {
	f.count("passed", k.Admitted)
	f.count("refused", k.Refused)
	f.millis("waited_ms", k.Waited)
	f.flag("paused", k.Paused)
	f.flag("pinned", k.Pinned)
	f.flag("counting", k.Counting)
}
