package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func keys() Spec {
	return Spec{
		Name: "FILA.KEYS", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT, in slices",
		Summary: "Returns the fairness keys of a queue with their figures, a page at a time.",
		Flags:   []string{"readonly"},
		Access:  Look,
		Reply: pageReply + "A key is a map: " + keyFields(&engine.KeyInfo{}, time.Time{}).names() + ". " +
			"share and fair_share are parts of 1, over the last minute; state is one of ready, no_consumer, throttled, concurrency, paused, " +
			"loading, leased, delayed, empty; ready_at says until when, where that is known; counting is 1 while the depth is still being counted; " +
			"blocked_by lists the throttles that do not admit the next message now, of which throttle is the first.",
		Args: append([]Arg{{Name: "queue", Type: Key}}, pageOptions()...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEYS orders", "1) \"0\"\n2) (empty array)"},
			{"FILA.ENQUEUE orders hello KEY tenant-1 WEIGHT 3", `"<id>"`},
			{"FILA.KEYS orders MATCH tenant-* COUNT 100", "..."},
		},
		Room: pageOf[engine.KeyInfo](2, tinyRoom),
		Parse: func(in *input) (call, error) {
			return &keyPage{page: parsePage(in), req: engine.Keys{Queue: in.text("queue")}}, nil
		},
	}
}

type keyPage struct {
	page
	req  engine.Keys
	now  time.Time
	list []*engine.KeyInfo
}

// Apply implements engine.Call.
func (c *keyPage) Apply(tx *engine.Tx) (err error) {
	c.now, c.req.Cursor, c.req.Count, c.req.Match = tx.Now(), c.cursor, c.count, c.match
	c.next, c.list, err = tx.Keys(&c.req)
	return err
}

// Render writes the next cursor and the keys.
func (c *keyPage) Render(_ *Handler, w *resp.Writer) error {
	c.write(w, len(c.list), func(i int) *fields { return keyFields(c.list[i], c.now) })
	return nil
}

func keyFields(k *engine.KeyInfo, now time.Time) *fields {
	var f fields
	f.text("key", k.Key)
	f.keyFigures(k)
	f.text("state", k.State)
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
	return &f
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
