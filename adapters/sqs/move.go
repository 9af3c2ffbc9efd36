package sqs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"
)

// A message move task is a FILA.REDRIVE, which goes on in the broker by itself. The broker knows how far it is; what was
// asked for is kept with the dead-letter queue.

// move is the last message move task from a queue.
type move struct {
	Destination string `json:"destination,omitempty"` // empty: back to where each message came from
	Rate        int    `json:"rate,omitempty"`        // messages a second; 0: without limit
	StartedAt   int64  `json:"started_at"`            // Unix milliseconds
	ToMove      int64  `json:"to_move"`
	Cancelled   bool   `json:"cancelled,omitempty"`
}

// handle names a task: its queue and its start.
type handle struct {
	Queue     string `json:"q"`
	StartedAt int64  `json:"t"`
}

func (h handle) text() string {
	b, err := json.Marshal(h)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

type startMoveInput struct {
	SourceArn                    string
	DestinationArn               string
	MaxNumberOfMessagesPerSecond *int
}

type taskHandle struct{ TaskHandle string }

const moveRateMax = 500 // messages a second

func startMove(c *call, in *startMoveInput) (*taskHandle, error) {
	name, _ := queueOfARN(in.SourceArn) // moveSource says what of it is not valid
	defer c.lock(name)()
	q, err := c.moveSource(in.SourceArn)
	if err != nil {
		return nil, err
	}
	m := &move{StartedAt: time.Now().UnixMilli(), ToMove: q.visible()}
	args := []any{"FILA.REDRIVE", q.name}
	if in.DestinationArn != "" {
		if m.Destination, err = queueOfARN(in.DestinationArn); err != nil {
			return nil, err
		}
		if _, err := c.look(m.Destination); err != nil {
			return nil, resourceNotFound.of("The resource that you specified for the DestinationArn parameter doesn't exist.")
		}
		args = append(args, "TO", m.Destination)
	}
	if in.MaxNumberOfMessagesPerSecond != nil {
		if m.Rate, err = optional(in.MaxNumberOfMessagesPerSecond, "MaxNumberOfMessagesPerSecond", 1, moveRateMax, 0); err != nil {
			return nil, err
		}
		args = append(args, "RATE", m.Rate)
	}
	if running, _, err := c.moving(q.name); err != nil {
		return nil, err
	} else if running {
		return nil, unsupportedOperation.of("There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
	}
	k := q.kept
	k.Move = m
	if err := c.keep(q.name, k); err != nil {
		return nil, err
	}
	if err := c.client.Do(c.ctx, args...).Err(); err != nil {
		return nil, err
	}
	return &taskHandle{handle{q.name, m.StartedAt}.text()}, nil
}

// moveSource returns the dead-letter queue with a name.
func (c *call) moveSource(arn string) (*queue, error) {
	if arn == "" {
		return nil, missingParameter.of("The request must contain the parameter SourceArn.")
	}
	name, err := queueOfARN(arn)
	if err != nil {
		return nil, err
	}
	q, err := c.look(name)
	if err != nil {
		return nil, resourceNotFound.of("The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	if number(q.info["is_dlq"]) == 0 {
		return nil, invalidParameter.of("Source queue must be configured as a Dead Letter Queue.")
	}
	return q, nil
}

// moving returns whether a redrive from a queue runs, and how many messages that or the last one has moved.
func (c *call) moving(name string) (running bool, moved int64, err error) {
	stats, err := fieldsOf(c.client.Do(c.ctx, "FILA.STATS", name).Result())
	return number(stats["redrive_running"]) != 0, number(stats["redrive_moved"]), err
}

type listMovesInput struct {
	SourceArn  string
	MaxResults *int
}

type task struct {
	ApproximateNumberOfMessagesMoved  int64
	ApproximateNumberOfMessagesToMove int64
	DestinationArn                    string `json:",omitempty"`
	MaxNumberOfMessagesPerSecond      int    `json:",omitempty"`
	SourceArn                         string
	StartedTimestamp                  int64
	Status                            string
	TaskHandle                        string `json:",omitempty"`
}

type listMovesOutput struct {
	Results []task `q:"ListMessageMoveTasksResultEntry"`
}

// listMoves lists the last task from a queue: the broker keeps no others.
func listMoves(c *call, in *listMovesInput) (*listMovesOutput, error) {
	q, err := c.moveSource(in.SourceArn)
	if err != nil {
		return nil, err
	}
	out := &listMovesOutput{Results: []task{}}
	m := q.kept.Move
	if m == nil {
		return out, nil
	}
	running, moved, err := c.moving(q.name)
	if err != nil {
		return nil, err
	}
	t := task{
		ApproximateNumberOfMessagesMoved:  moved,
		ApproximateNumberOfMessagesToMove: m.ToMove,
		MaxNumberOfMessagesPerSecond:      m.Rate,
		SourceArn:                         c.arnOf(q.name),
		StartedTimestamp:                  m.StartedAt,
		Status:                            "COMPLETED",
	}
	if m.Destination != "" {
		t.DestinationArn = c.arnOf(m.Destination)
	}
	switch {
	case running:
		t.Status, t.TaskHandle = "RUNNING", handle{q.name, m.StartedAt}.text()
	case m.Cancelled:
		t.Status = "CANCELLED"
	}
	out.Results = append(out.Results, t)
	return out, nil
}

type cancelledMove struct{ ApproximateNumberOfMessagesMoved int64 }

func cancelMove(c *call, in *taskHandle) (*cancelledMove, error) {
	if in.TaskHandle == "" {
		return nil, missingParameter.of("The request must contain the parameter TaskHandle.")
	}
	var h handle
	b, err := base64.RawURLEncoding.DecodeString(in.TaskHandle)
	if err != nil || json.Unmarshal(b, &h) != nil || h.Queue == "" {
		return nil, invalidParameter.of("The task handle is not valid.")
	}
	defer c.lock(h.Queue)()
	q, err := c.look(h.Queue)
	if err != nil || q.kept.Move == nil || q.kept.Move.StartedAt != h.StartedAt {
		return nil, resourceNotFound.of("The task handle names no task that is running.")
	}
	running, _, err := c.moving(h.Queue)
	if err != nil {
		return nil, err
	}
	if !running {
		return nil, resourceNotFound.of("The task is not running any more.")
	}
	moved, err := c.client.Do(c.ctx, "FILA.REDRIVE", h.Queue, "STOP").Int64()
	if err != nil {
		return nil, err
	}
	m := *q.kept.Move
	m.Cancelled = true
	k := q.kept
	k.Move = &m
	return &cancelledMove{moved}, c.keep(h.Queue, k)
}

// detached is a context for what is done after a request was given up.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}
