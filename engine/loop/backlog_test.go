package loop

import (
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/storage"
)

// costly is a call that takes units of work.
type costly int

func (units costly) Apply(tx *engine.Tx) error {
	at := 0
	return tx.Each(&at, 1, int(units), func(int) {})
}

// Tasks that the loop has taken but not executed count as if they were in the inbox: a
// turn's budget must not let the commands of a client accumulate in memory.
func TestTheBacklogCountsForTheBoundOfTheInbox(t *testing.T) {
	tasks := func(n int) []*engine.Task {
		all := make([]*engine.Task, n)
		for i := range all {
			all[i] = &engine.Task{Call: costly(1), Bytes: 10}
		}
		return all
	}
	for name, c := range map[string]struct {
		backlog int // tasks of 10 bytes
		waits   bool
	}{"as many as there may be": {6, false}, "one more": {7, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, bound := range []func(*engine.Config){
					func(c *engine.Config) { c.InboxTasks = 10 }, func(c *engine.Config) { c.InboxBytes = 100 },
				} {
					cfg := engine.DefaultConfig()
					bound(&cfg)
					e, err := New(cfg, storage.NewMemory())
					if err != nil {
						t.Fatal(err)
					}
					m := e.machine
					if _, err := m.Start(); err != nil {
						t.Fatal(err)
					}
					m.Turn(m.Now(), 0, append([]*engine.Task{{Call: costly(1 << 20)}}, tasks(c.backlog)...))
					if n, bytes := m.Backlog(); n != c.backlog || bytes != 10*c.backlog {
						t.Fatalf("a turn has left %d tasks of %d bytes, want %d", n, bytes, c.backlog)
					}
					e.collect(nil)
					submitted := false
					go func() {
						e.Submit(tasks(4))
						submitted = true
					}()
					synctest.Wait()
					if submitted == c.waits {
						t.Errorf("with %d tasks left, Submit of 4 has waited: %v", c.backlog, !submitted)
					}
					m.Turn(m.Now(), 0, nil)
					e.collect(nil)
					synctest.Wait()
					if !submitted {
						t.Error("Submit waits though nothing is left")
					}
					m.Close()
				}
			})
		})
	}
}
