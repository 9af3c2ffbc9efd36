package commands

import (
	"math"
	"slices"

	"github.com/faisca/fila/engine"
)

func redrive() Spec {
	return Spec{
		Name: "FILA.REDRIVE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of messages moved",
		Summary: "Moves dead messages back to where each came from; their attempts start again. Returns how many. " +
			"RATE limits how many are moved in any second. A redrive that takes longer than a second returns how many it has moved so far and goes on in the background; " +
			"FILA.STATS of the queue shows its progress, and STOP ends it.",
		Reply: "How many messages were moved, with STOP by the redrive that was running. Each message moves atomically; those that are leased or wait for their time, " +
			"and those whose queue is missing, full or paused, stay. One redrive of a queue runs at a time; a restart ends it, so run it again.",
		Flags:  []string{"write"},
		Access: Consume, ACL: []string{"admin"},
		Args: []Arg{
			{Name: "dlq", Type: Key},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: math.MaxInt32},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "queue", Type: Key, Token: "TO", Optional: true, Access: Produce},
			{Name: "n", Type: Integer, Token: "RATE", Optional: true, Min: 1, Max: 1_000_000},
			{Name: "stop", Type: PureToken, Token: "STOP", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.NACK orders <receipt> DEAD", "..."},
			{"FILA.REDRIVE orders.dlq COUNT 100 RATE 50", "(integer) 1"},
			{"FILA.REDRIVE orders.dlq STOP", "(integer) 0"},
		},
		Parse: parseRedrive,
	}
}

func parseRedrive(in *input) (call, error) {
	if err := in.filled("key", "KEY", "FILA.REDRIVE without KEY moves the messages of all keys"); err != nil {
		return nil, err
	}
	if err := in.filled("to", "TO", "FILA.REDRIVE without TO moves messages back to where each came from"); err != nil {
		return nil, err
	}
	if !in.has("stop") {
		return &redriveCall{req: engine.Redrive{
			DLQ: in.text("dlq"), Count: int(in.integer("count", 0)), Key: in.text("key"), To: in.text("to"), Rate: int(in.integer("rate", 0)),
		}}, nil
	}
	if slices.ContainsFunc([]string{"count", "key", "to", "rate"}, in.has) {
		return nil, &refusal{"ERR", "STOP stands alone, usage: " + in.cmd.usageLine()}
	}
	return &redriveStop{dlq: in.text("dlq")}, nil
}

type redriveCall struct {
	req engine.Redrive
	counted
}

// Apply implements engine.Call.
func (c *redriveCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Redrive(&c.req)
	return err
}

type redriveStop struct {
	dlq string
	counted
}

// Apply implements engine.Call.
func (c *redriveStop) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.StopRedrive(c.dlq)
	return err
}
