package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// scanCounter counts the iterators over messages.
type scanCounter struct {
	Store

	scans int
}

func (s *scanCounter) Scan(f storage.Family, from, to []byte) storage.Iterator {
	if f == storage.Messages {
		s.scans++
	}
	return s.Store.Scan(f, from, to)
}

// After a start the first messages of all keys are read, with one iterator for as many keys as may be read at a time: a
// look-up of each key would be most of what a start with many keys costs.
func TestAStartReadsNeighbouringKeysByStep(t *testing.T) {
	const keys = 300
	store := &scanCounter{Store: storage.NewMemory()}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	for i := range keys {
		for n := range 1 + i%7 { // more than adjacent keys are apart
			w.enqueue("q", fmt.Sprint("tenant", i), fmt.Sprint(n))
		}
	}
	want := w.machine.core.heads.messages
	m, err := NewMachine(DefaultConfig(), store, func() int64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	count, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	var tasks []*Task
	post := func(c Call) { tasks = append(tasks, &Task{Call: c}) }
	count(post)
	store.scans = 0
	for {
		m.Turn(w.Now(), 0, tasks)
		tasks = nil
		work := m.Cut()
		if work == nil {
			break
		}
		work.Conclude(work.Take(), work.Commit(store))
		m.Committed(work)
		for _, jobs := range work.Jobs() {
			jobs.Run(store, post)
		}
	}
	if got := m.core.heads.messages; got != want {
		t.Errorf("%d messages are in memory after a start, %d were before", got, want)
	}
	if most := keys/(readsAtStart*m.core.cfg.ReadsMax) + 2; store.scans > most || store.scans == 0 {
		t.Errorf("%d keys are read with %d iterators, at most %d are needed", keys, store.scans, most)
	}
}
