package engine

import (
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/storage"
)

// Tasks that the loop has taken but not executed count as if they were in the inbox: a
// turn's budget must not let the commands of a client accumulate in memory.
func TestTheBacklogCountsForTheBoundOfTheInbox(t *testing.T) {
	for name, c := range map[string]struct {
		backlog int // tasks of 10 bytes
		waits   bool
	}{"as many as there may be": {6, false}, "one more": {7, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, bound := range []func(*Config){
					func(c *Config) { c.InboxTasks = 10 }, func(c *Config) { c.InboxBytes = 100 },
				} {
					cfg := DefaultConfig()
					bound(&cfg)
					e, err := New(cfg, storage.NewMemory())
					if err != nil {
						t.Fatal(err)
					}
					left := make([]*Task, c.backlog)
					for i := range left {
						left[i] = &Task{Call: callFunc(func(*Tx) error { return nil }), Bytes: 10}
					}
					e.core.setBacklog(left)
					e.collect(nil)
					submitted := false
					go func() {
						tasks := make([]*Task, 4)
						for i := range tasks {
							tasks[i] = &Task{Call: callFunc(func(*Tx) error { return nil }), Bytes: 10}
						}
						e.Submit(tasks)
						submitted = true
					}()
					synctest.Wait()
					if submitted == c.waits {
						t.Errorf("with %d tasks left, Submit of 4 has waited: %v", c.backlog, !submitted)
					}
					e.core.setBacklog(nil)
					e.collect(nil)
					synctest.Wait()
					if !submitted {
						t.Error("Submit waits though nothing is left")
					}
				}
			})
		})
	}
}
