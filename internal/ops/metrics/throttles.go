package metrics

import (
	"time"

	"github.com/faisca/fila/engine"
)

// throttleSample is a throttle at one moment, and its counters as shown.
type throttleSample struct {
	engine.ThrottleInfo
	passed, refused, waited, cuts uint64 // waited in nanoseconds
}

func (p *place) seeThrottle(i *engine.ThrottleInfo) throttleSample {
	return throttleSample{
		ThrottleInfo: *i, passed: p.counters[0].see(i.Admitted), refused: p.counters[1].see(i.Refused),
		waited: p.counters[2].see(uint64(max(i.Waited, 0))), cuts: p.counters[3].see(i.Cuts),
	}
}

// write writes the series of a throttle.
func (t *throttleSample) write(f *families, now time.Time) {
	l := label(labelThrottle, text(t.Key))
	f.value(throttleTokens, t.Tokens, l)
	f.count(throttleBurst, t.Burst, l)
	f.value(throttleRate, t.Rate, l)
	f.number(throttleHeld, t.InUse, l)
	f.count(throttleConcurrency, t.Concurrency, l)
	f.number(throttleWaiting, t.Waiting, l)
	f.count(throttlePassed, t.passed, l)
	f.count(throttleRefused, t.refused, l)
	f.value(throttleWaited, time.Duration(t.waited).Seconds(), l)
	hold := time.Duration(0)
	if !t.HeldUntil.IsZero() {
		hold = max(t.HeldUntil.Sub(now), 0)
	}
	f.value(throttleHeldSeconds, hold.Seconds(), l)
	if t.Min > 0 {
		f.value(throttleAdaptive, t.Limit, l)
		f.count(throttleCuts, t.cuts, l)
	}
}

// budgetSample is a budget at one moment, and its counters as shown.
type budgetSample struct {
	engine.BudgetInfo
	credited, spent uint64
}

func (p *place) seeBudget(i *engine.BudgetInfo) budgetSample {
	return budgetSample{BudgetInfo: *i, credited: p.counters[0].see(uint64(i.Credited)), spent: p.counters[1].see(uint64(i.Spent))}
}

// write writes the series of a budget.
func (b *budgetSample) write(f *families) {
	l := label(labelBudget, text(b.Name))
	f.number(budgetBalance, b.Balance, l)
	f.number(budgetReserved, b.Reserved, l)
	f.number(budgetAvailable, b.Available, l)
	if b.Low != nil {
		f.number(budgetLow, *b.Low, l)
	}
	f.number(budgetWaiting, b.Waiting, l)
	f.count(budgetCredited, b.credited, l)
	f.count(budgetSpent, b.spent, l)
	if b.Refill > 0 {
		f.flag(budgetRefillDead, b.RefillError != "", l)
	}
}
