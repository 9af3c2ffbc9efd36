package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// Budgets of allocations. Unlike times, counts are the same on every machine. A change that
// saves allocations lowers the budget; one that needs more explains it in its commit. The
// race detector allocates, so this file is excluded there.

// cycleAllocations is the budget for one message, enqueued in turns of 64 and leased and
// acked by 16, in the loop alone. It includes what the test itself allocates for leases and
// acks, a third of an allocation.
const cycleAllocations = 4.0

func TestACycleAllocatesWithinItsBudget(t *testing.T) {
	const warmUp, runs = 20, 50
	l := newLoad(t, 100, 4)
	sets := make([][]*Task, 0, warmUp+runs+testkit.Rounds)
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
	for range warmUp {
		cycle()
	}
	per := testkit.Allocations(runs, cycle) / turnTasks
	if per > cycleAllocations {
		t.Errorf("%.2f allocations a message, the budget is %g", per, cycleAllocations)
	}
}

// waitAllocations is the budget for the wait of a lease in the loop: what a lease that waits and
// is served when a message arrives allocates more than one that finds the message.
const waitAllocations = 1.5

func TestAWaitingLeaseAllocatesWithinItsBudget(t *testing.T) {
	const warmUp, runs = 20, 50
	allocations := func(waits bool) float64 {
		l := newLoad(t, 4, 0)
		clients := make([]*Client, turnTasks)
		for i := range clients {
			clients[i] = NewClient(uint64(i)+1, func() {})
		}
		type set struct {
			leases, enqueues, acks []*Task
			leased                 []*leaseTask
		}
		sets := make([]set, warmUp+runs+testkit.Rounds)
		for i := range sets {
			l.prepare()
			s := &sets[i]
			s.enqueues = l.tasks
			for _, cl := range clients {
				lease := &leaseTask{req: LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Minute}}
				s.leased = append(s.leased, lease)
				s.leases = append(s.leases, &Task{Call: lease, Client: cl})
				s.acks = append(s.acks, &Task{Call: &ackTask{receipts: make([]Receipt, 0, 1)}})
			}
		}
		next := 0
		cycle := func() {
			s := &sets[next]
			next++
			first, second := s.enqueues, s.leases
			if waits {
				first, second = second, first
			}
			l.now = l.now.Add(50 * time.Microsecond)
			l.Do(first...)
			l.Do(second...)
			for i, lease := range s.leased {
				if len(lease.ds) != 1 {
					t.Fatalf("lease %d has %d messages", i, len(lease.ds))
				}
				ack := s.acks[i].Call.(*ackTask) //nolint:errcheck // made above
				ack.receipts = append(ack.receipts, lease.ds[0].Receipt)
			}
			l.Do(s.acks...)
		}
		for range warmUp {
			cycle()
		}
		return testkit.Allocations(runs, cycle) / turnTasks
	}
	found, waited := allocations(false), allocations(true)
	t.Logf("%.2f allocations for a message that is found, %.2f for one that is waited for", found, waited)
	if waited-found > waitAllocations {
		t.Errorf("a wait takes %.2f allocations, the budget is %g", waited-found, waitAllocations)
	}
}
