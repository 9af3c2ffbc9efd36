//go:build !race

package engine

import (
	"testing"
	"time"
)

// Budgets of allocations. Unlike times, counts are the same on every machine. A change that
// saves allocations lowers the budget; one that needs more explains it in its commit. The
// race detector allocates, so this file is excluded there.

// cycleAllocations is the budget for one message, enqueued in turns of 64 and leased and
// acked by 16, in the loop alone. It includes what the test itself allocates for leases and
// acks, a third of an allocation.
const cycleAllocations = 5.5

func TestACycleAllocatesWithinItsBudget(t *testing.T) {
	const runs = 50
	l := newLoad(t, 100, 4)
	sets := make([][]*Task, 0, runs+20)
	for range cap(sets) {
		l.prepare()
		sets = append(sets, l.tasks)
	}
	next := 0
	cycle := func() {
		l.now = l.now.Add(50 * time.Microsecond)
		l.Do(sets[next]...)
		next++
		for range turnTasks / batchSize {
			lease := &leaseTask{req: LeaseRequest{Queues: []string{"q"}, Count: batchSize, Block: -1}}
			l.Do(&Task{Call: lease})
			ack := &ackTask{receipts: make([]Receipt, 0, batchSize)}
			for _, d := range lease.ds {
				ack.receipts = append(ack.receipts, d.Receipt)
			}
			l.Do(&Task{Call: ack})
		}
	}
	for range 19 {
		cycle()
	}
	per := testing.AllocsPerRun(runs, cycle) / turnTasks
	if per > cycleAllocations {
		t.Errorf("%.2f allocations a message, the budget is %g", per, cycleAllocations)
	}
}
