package engine

import (
	"fmt"
	"testing"
	"time"
)

// What must not hold up others, and what must not be forgotten while it waits.

// What a client has sent behind its wait goes before what it sends afterwards, also if
// that is there when the wait ends, or when the memory is built anew.
func TestWhatAWaitHeldBackGoesFirst(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"its time is over": func(w *world) { w.now = w.now.Add(time.Second) },
		"the store failed": func(w *world) { w.recoverInPlace() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			cl := NewClient(1, func() {})
			var order []string
			say := func(what string) *Task {
				return &Task{Client: cl, Call: callFunc(func(*Tx) error { order = append(order, what); return nil })}
			}
			w.Do(&Task{Client: cl, Call: callFunc(func(tx *Tx) error {
				_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Second})
				return err
			})}, say("first"), say("second"))
			end(w)
			w.Do(say("third"))
			w.Advance(time.Second)
			if got := fmt.Sprint(order); got != "[first second third]" {
				t.Errorf("got %s", got)
			}
		})
	}
}
