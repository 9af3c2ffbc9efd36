package engine

import (
	"flag"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

var monthBudgets = flag.Int("month-budgets", 1_000_000, "budgets of BenchmarkTheMonthOfManyBudgetsBegins")

// threadTime is the time of the processor that this thread has used.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTheMonthOfManyBudgetsBegins lets the tick of many budgets pass. Keys wait for a part of
// them, and consumers for these keys; then all budgets are listed. It reports the longest turn, in
// time of the processor, which what runs beside it does not change.
func BenchmarkTheMonthOfManyBudgetsBegins(b *testing.B) {
	refill, err := NewRefill(100, "@monthly", "", 300)
	if err != nil {
		b.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		b.StopTimer()
		cfg := DefaultConfig()
		cfg.Limits.Budgets = *monthBudgets
		s, err := NewStepper(cfg, storage.NewMemory(), time.Unix(1_700_000_000, 0))
		if err != nil {
			b.Fatal(err)
		}
		do := func(call func(tx *Tx) error) {
			task := &Task{Call: callFunc(call)}
			if s.Do(task); !task.Done() || task.Err() != nil {
				b.Fatal("a call waits, or: ", task.Err())
			}
		}
		do(func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })
		waiting := min(*monthBudgets, 100_000)
		for i := range *monthBudgets {
			name := fmt.Sprint("b", i)
			do(func(tx *Tx) error { return tx.SetBudget(name, &BudgetOptions{Refill: refill}) })
			if i >= waiting {
				continue
			}
			charge := int64(150) // the first filling does not cover it, the next does
			req := &Enqueue{Queue: "q", Key: name, Meta: Meta{Budgets: []string{name}}, Charge: &charge}
			if err := s.Prepare(req); err != nil {
				b.Fatal(err)
			}
			do(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
		}
		out := 0
		for i := range 200 { // consumers that come again for as long as there is something
			client := NewClient(uint64(i+1), func() {})
			req := &LeaseRequest{Queues: []string{"q"}, Count: 1000}
			s.Do(&Task{Client: client, Call: callFunc(func(tx *Tx) error { ds, err := tx.Lease(req); out += len(ds); return err })})
		}
		list := &BudgetList{Count: 1000, Match: func(string) bool { return true }}
		page := func() *Task {
			return &Task{Call: callFunc(func(tx *Tx) (err error) { list.Cursor, _, err = tx.Budgets(list); return err })}
		}
		listing := page()
		b.StartTimer()
		longest, turns := time.Duration(0), 0
		s.now = s.now.Add(32 * 24 * time.Hour)
		for tasks := []*Task{nil}[:0]; turns < 10 || !listing.Done() || list.Cursor != 0; turns++ {
			if listing.Done() {
				listing = page()
				tasks = append(tasks, listing)
			} else if turns == 5 {
				tasks = append(tasks, listing)
			}
			begun := threadTime(b)
			s.core.turn(s.now, tasks)
			longest = max(longest, threadTime(b)-begun)
			s.release(s.machine.TakeEarly(nil))
			if w := s.core.cut(); w != nil {
				s.commit(w)
			}
			tasks = tasks[:0]
		}
		b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest-turn")
		b.ReportMetric(float64(turns), "turns")
		b.ReportMetric(float64(out), "deliveries")
	}
}
