package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
)

// applyQueues makes the queues, topics and throttles match the configuration, atomically. A failure of the store
// is returned as it is; any other error is one of the configuration.
func (b *broker) applyQueues() error {
	if b.cfg.Tables.Empty() {
		return nil
	}
	definition, err := b.cfg.Definition()
	if err != nil {
		return err
	}
	a := queueApplication{}
	if a.set, err = commands.Queues(definition, b.engine); err != nil {
		return cli.UsageError{Err: fmt.Errorf("queues: %w", err)}
	}
	done := make(chan struct{}, 1)
	task := &engine.Task{Call: &a, Client: engine.NewClient(0, func() {
		select {
		case done <- struct{}{}:
		default:
		}
	})}
	b.engine.Submit([]*engine.Task{task})
	<-done
	err = task.Err()
	if errors.Is(err, engine.ErrMisconf) || errors.Is(err, engine.ErrStopped) {
		return fmt.Errorf("queues: %w", err)
	}
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("queues: %w", err)}
	}
	for _, c := range a.changes {
		e := b.log.Info().Str("queue", c.Queue).Str("action", c.Action)
		if c.Topic != "" {
			e = e.Str("topic", c.Topic)
		}
		if c.Throttle != "" {
			e = e.Str("throttle", c.Throttle)
		}
		for _, f := range c.Fields {
			e = e.Str(f.Name, f.From+" → "+f.To)
		}
		e.Msg("queues applied")
	}
	return nil
}

// applyQueuesLater repeats applyQueues every second until the store takes writes or ctx
// ends.
func (b *broker) applyQueuesLater(ctx context.Context) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		err := b.applyQueues()
		if errors.Is(err, engine.ErrMisconf) {
			continue
		}
		if err != nil && !errors.Is(err, engine.ErrStopped) {
			b.log.Error().Err(err).Msg("configured queues could not be applied")
		}
		return
	}
}

// queueApplication is the call that applies the configured queues.
type queueApplication struct {
	set     engine.QueueSet
	changes []engine.QueueChange
}

// Apply implements engine.Call.
func (a *queueApplication) Apply(tx *engine.Tx) (err error) {
	a.changes, err = tx.ApplyQueues(&a.set)
	return err
}
