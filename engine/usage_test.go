package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// usage is a call that reads the statistics of queues.
type usage func(tx *Tx) error

func (u usage) Apply(tx *Tx) error { return u(tx) }

func TestScanningSeesEveryQueueOnceWhileOthersComeAndGo(t *testing.T) {
	s, err := NewStepper(DefaultConfig(), storage.NewMemory(), time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	do := func(u usage) {
		t.Helper()
		task := &Task{Call: u}
		s.Do(task)
		if task.Err() != nil {
			t.Fatal(task.Err())
		}
	}
	create := func(name string) {
		do(func(tx *Tx) error { return tx.CreateQueue(name, QueueOptions{NoDLQ: true}) })
	}
	drop := func(name string) { do(func(tx *Tx) error { return tx.DeleteQueue(name, true) }) }
	for i := range 20 {
		create(fmt.Sprintf("stays-%02d", i))
		create(fmt.Sprintf("goes-%02d", i))
	}
	var seen []string
	for cursor, pages := uint64(0), 0; ; pages++ {
		var page []string
		do(func(tx *Tx) (err error) {
			cursor, page, err = tx.ScanQueues(cursor, 7, func(name string) bool { return name[0] == 's' })
			return err
		})
		seen = append(seen, page...)
		if cursor == 0 {
			break
		}
		drop(fmt.Sprintf("goes-%02d", pages))
		create(fmt.Sprintf("new-%02d", pages))
	}
	if len(seen) != 20 || !slices.IsSorted(seen) {
		t.Errorf("saw %d queues: %v", len(seen), seen)
	}
}

func TestAPageOfQueuesPassesABoundedGap(t *testing.T) {
	s, err := NewStepper(DefaultConfig(), storage.NewMemory(), time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	s.core.queues.nextNumber += 10_000 // as if 10,000 queues had been created and deleted
	s.Do(&Task{Call: usage(func(tx *Tx) error { return tx.CreateQueue("last", QueueOptions{NoDLQ: true}) })})
	pages := 0
	var seen []string
	for cursor := uint64(0); ; {
		var page []string
		s.Do(&Task{Call: usage(func(tx *Tx) (err error) {
			cursor, page, err = tx.ScanQueues(cursor, 10, func(string) bool { return true })
			return err
		})})
		pages++
		seen = append(seen, page...)
		if cursor == 0 {
			break
		}
	}
	if pages != 3 || !slices.Equal(seen, []string{"last"}) {
		t.Errorf("%d pages, saw %v", pages, seen)
	}
}
