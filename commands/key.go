package commands

import (
	"math"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func key() Spec {
	return Spec{
		Name: "FILA.KEY", Group: "fila", Since: "0.1.0", Complexity: "Depends on subcommand.",
		Summary:     "A container for the commands that manage a fairness key of a queue.",
		Subcommands: []Spec{keyDel(), keyGet(), help("FILA.KEY"), keyPause(), keyResume(), keySet()},
	}
}

func keyArgs(more ...Arg) []Arg {
	return append([]Arg{{Name: "queue", Type: Key}, {Name: "key", Type: String}}, more...)
}

func keySet() Spec {
	return Spec{
		Name: "SET", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Sets the weight of a fairness key: it counts for the whole backlog from the next visit on, and stays when the key runs empty.",
		Flags:   []string{"write", "denyoom", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(Arg{Name: "n", Type: Integer, Token: "WEIGHT", Optional: true, Min: math.MinInt64}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY SET orders tenant-1 WEIGHT 3", "OK"},
		},
		Parse: func(in *input) (call, error) {
			if !in.has("weight") {
				return nil, &refusal{"ERR", "nothing to set, usage: " + in.cmd.usageLine()}
			}
			c := &keyChange{queue: in.text("queue"), key: in.text("key")}
			weight, err := in.atLeastOne("WEIGHT", "weight", in.limits.Weight)
			c.options.Weight = &weight
			return c, err
		},
	}
}

type keyChange struct {
	plainOK
	queue, key string
	options    engine.KeyOptions
}

// Apply implements engine.Call.
func (c *keyChange) Apply(tx *engine.Tx) error { return tx.SetKey(c.queue, c.key, c.options) }

func keyPause() Spec {
	return Spec{
		Name: "PAUSE", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Stops deliveries of a fairness key. It still takes messages; what is leased stays leased.",
		Flags:   []string{"write", "denyoom", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.KEY PAUSE orders tenant-1", "OK"},
			{"FILA.LEASE orders", "(empty array)"},
		},
		Parse: func(in *input) (call, error) {
			return &keyStop{queue: in.text("queue"), key: in.text("key"), paused: true}, nil
		},
	}
}

func keyResume() Spec {
	return Spec{
		Name: "RESUME", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Lets a paused fairness key deliver again.",
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY PAUSE orders tenant-1", "OK"},
			{"FILA.KEY RESUME orders tenant-1", "OK"},
		},
		Parse: func(in *input) (call, error) { return &keyStop{queue: in.text("queue"), key: in.text("key")}, nil },
	}
}

// keyStop pauses a key or lets it go on.
type keyStop struct {
	plainOK
	queue, key string
	paused     bool
}

// Apply implements engine.Call.
func (c *keyStop) Apply(tx *engine.Tx) error { return tx.PauseKey(c.queue, c.key, c.paused) }

func keyDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Removes a fairness key's settings, never its messages: weight 1, not paused. Returns 1, or 0 if it had none.",
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY SET orders tenant-1 WEIGHT 3", "OK"},
			{"FILA.KEY DEL orders tenant-1", "(integer) 1"},
		},
		Parse: func(in *input) (call, error) { return &keyReset{queue: in.text("queue"), key: in.text("key")}, nil },
	}
}

type keyReset struct {
	removed
	queue, key string
}

// Apply implements engine.Call.
func (c *keyReset) Apply(tx *engine.Tx) (err error) {
	c.removed.found, err = tx.ResetKey(c.queue, c.key)
	return err
}

func keyGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Returns the settings and figures of one fairness key, also of one that has no messages.",
		Reply:   "A map as in FILA.KEYS.",
		Flags:   []string{"readonly", "fast"},
		Access:  Look,
		Args:    keyArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.KEY GET orders tenant-1", "..."},
		},
		Parse: func(in *input) (call, error) { return &keyLook{queue: in.text("queue"), key: in.text("key")}, nil },
	}
}

type keyLook struct {
	queue, key string
	now        time.Time
	info       engine.KeyInfo
}

// Apply implements engine.Call.
func (c *keyLook) Apply(tx *engine.Tx) (err error) {
	c.now = tx.Now()
	c.info, err = tx.Key(c.queue, c.key)
	return err
}

// Render writes a map.
func (c *keyLook) Render(_ *Handler, w *resp.Writer) error {
	keyFields(&c.info, c.now).write(w)
	return nil
}
