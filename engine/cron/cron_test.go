package cron

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

const minute = int64(time.Minute)

// start is the beginning of a minute.
const start = 1_700_000_040 * int64(time.Second)

func minutely(t testing.TB) *schedule.Schedule {
	t.Helper()
	return parsed(t, "* * * * *", "")
}

func parsed(t testing.TB, expression, zone string) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func record(rule CatchUp) storage.Cron {
	return storage.Cron{Queue: "q", Expression: "* * * * *", CatchUp: uint32(rule)}
}

// check fails the test if the invariants of a table do not hold while these ticks are being made.
func check(t testing.TB, table *Table, counting bool, made ...*Tick) {
	t.Helper()
	table.Check(func(k *Tick) bool { return slices.Contains(made, k) }, counting, func(no int, format string, args ...any) {
		t.Errorf("invariant %d: %s", no, fmt.Sprintf(format, args...))
	})
}

// run makes all ticks that are due, and returns the minutes since start at which they were.
func run(t testing.TB, table *Table, now int64) (ticks []int64) {
	t.Helper()
	for e := table.Due(now); e != nil; e = table.Due(now) {
		if _, steps := table.Skip(e, now); steps > 0 {
			continue
		}
		k := table.Take(e)
		check(t, table, false, k)
		k.End(Fired, "", now)
		table.Release(k)
		ticks = append(ticks, (k.At-start)/minute)
	}
	check(t, table, false)
	return ticks
}

func TestMissedTicksAreCaughtUpByTheRule(t *testing.T) {
	for _, test := range []struct {
		rule   CatchUp
		late   int64
		ticks  []int64
		missed uint64
	}{
		{Last, 5 * minute, []int64{4, 5}, 3},
		{None, 5 * minute, []int64{5}, 4},
		{All, 5 * minute, []int64{1, 2, 3, 4, 5}, 0},
		{Last, 5*minute + int64(Grace) + 1, []int64{5}, 4},
		{None, 5*minute + int64(Grace) + 1, nil, 5},
		{All, 5*minute + int64(Grace) + 1, []int64{1, 2, 3, 4, 5}, 0},
	} {
		table := NewTable()
		e := table.Set("m", record(test.rule), minutely(t), start)
		if at, ok := table.Next(); !ok || at != start+minute || table.Due(start+minute-1) != nil {
			t.Fatalf("the first tick is at %d", at)
		}
		if got := run(t, &table, start+test.late); !slices.Equal(got, test.ticks) || e.Record().Missed != test.missed {
			t.Errorf("%s, %d late: ticks %v, missed %d; want %v, %d", test.rule, test.late, got, e.Record().Missed, test.ticks, test.missed)
		}
		if i := e.Info(); i.Fired != uint64(len(test.ticks)) || len(i.Upcoming(3)) != 3 || i.Upcoming(3)[2].Sub(i.NextAt) != 2*time.Minute {
			t.Errorf("%s: %+v", test.rule, i)
		}
	}
}

func TestTicksInARowAreMadeUpForUpToABound(t *testing.T) {
	table := NewTable()
	rec := record(All)
	rec.NextAt, rec.MadeUp = start+minute, MadeUpMax-2
	if err := table.Restore("m", rec); err != nil {
		t.Fatal(err)
	}
	if got := run(t, &table, start+10*minute); !slices.Equal(got, []int64{1, 2, 9, 10}) {
		t.Errorf("ticks %v", got)
	}
	if n := table.Get("m").Record().MadeUp; n != 0 {
		t.Errorf("%d are made up for in a row after one in time", n)
	}
}

func TestSettingAnEntryAgainKeepsItsTick(t *testing.T) {
	table := NewTable()
	e := table.Set("m", record(Last), minutely(t), start)
	k := table.Take(e)
	k.End(Refused, "full", start+minute)
	table.Release(k)
	if i := e.Info(); i.Missed != 1 || i.LastError != "full" || i.ErrorAt.UnixNano() != start+minute || !i.LastAt.IsZero() {
		t.Errorf("after a refusal: %+v", i)
	}
	k = table.Take(e)
	again := record(None)
	again.Queue = "other"
	table.Set("m", again, minutely(t), start+5*minute)
	if rec := e.Record(); table.Holds(k) || rec.NextAt != k.At || rec.Missed != 1 || rec.Queue != "other" || rec.SetAt != start+5*minute {
		t.Errorf("the tick counts %v; %+v", table.Holds(k), rec)
	}
	check(t, &table, false)
	other := record(None)
	other.Expression = "0 0 * * *"
	table.Set("m", other, parsed(t, other.Expression, ""), start+5*minute)
	if at := e.Record().NextAt; at <= start+6*minute {
		t.Errorf("with another expression the next tick is at %d", at)
	}
	k = table.Take(e)
	table.Delete(e)
	if all, _ := table.Len(); all != 0 || table.Holds(k) || table.Get("m") != nil {
		t.Error("the entry is there after its deletion")
	}
	table.Release(k) // by a round that has not looked
	if _, ok := table.Next(); ok {
		t.Error("a deleted entry ticks")
	}
}

func TestTicksOfAPauseAreGivenUp(t *testing.T) {
	for _, rule := range []CatchUp{Last, None, All} {
		table := NewTable()
		e := table.Set("m", record(rule), minutely(t), start)
		k := table.Take(e)
		if !table.Pause(e, true, start+minute) || table.Pause(e, true, start+2*minute) || table.Holds(k) {
			t.Fatalf("%s: the pause: %+v, the tick counts %v", rule, e.Record(), table.Holds(k))
		}
		table.Release(k) // by a round that has not looked
		check(t, &table, false)
		if i := e.Info(); i.PausedAt.UnixNano() != start+minute || !i.NextAt.IsZero() || i.Upcoming(1) != nil || table.Due(start+5*minute) != nil {
			t.Errorf("%s: %+v", rule, i)
		}
		table.Set("m", record(rule), minutely(t), start+3*minute)
		restored := NewTable()
		if err := restored.Restore("m", e.Record()); err != nil {
			t.Fatal(err)
		}
		e = restored.Get("m")
		check(t, &restored, false)
		if got := run(t, &restored, start+5*minute); len(got) > 0 {
			t.Errorf("%s: ticks %v of a paused entry", rule, got)
		}
		if !restored.Pause(e, false, start+6*minute) || restored.Pause(e, false, start+6*minute) {
			t.Errorf("%s: it is not resumed", rule)
		}
		if got := append(run(t, &restored, start+7*minute), run(t, &restored, start+8*minute)...); !slices.Equal(got, []int64{7, 8}) || e.Record().Missed != 0 || !e.Info().PausedAt.IsZero() {
			t.Errorf("%s: ticks %v after the pause, %+v", rule, got, e.Record())
		}
	}
}

func TestAPauseBetweenTicksChangesNone(t *testing.T) {
	table := NewTable()
	e := table.Set("m", record(Last), minutely(t), start)
	table.Pause(e, true, start+minute/4)
	table.Pause(e, false, start+minute/2)
	if got := run(t, &table, start+2*minute); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("ticks %v", got)
	}
	table.Pause(e, true, start+3*minute-1)
	table.Pause(e, false, start+minute) // the clock was set back
	if at, _ := table.Next(); at != start+3*minute {
		t.Errorf("the next tick is at %d, and none is made twice", at)
	}
}

func TestAnEntryWithoutAValidScheduleIsDisabled(t *testing.T) {
	table := NewTable()
	bad := record(Last)
	bad.Zone, bad.NextAt = "No/Where", start
	if err := table.Restore("m", bad); err == nil {
		t.Fatal("the zone is valid")
	}
	if i := table.Get("m").Info(); !i.NextAt.IsZero() || i.LastError == "" || i.Upcoming(1) != nil {
		t.Errorf("%+v", i)
	}
	if all, disabled := table.Len(); all != 1 || disabled != 1 || table.Due(start) != nil {
		t.Errorf("%d entries, %d disabled", all, disabled)
	}
	table.Set("m", record(Last), minutely(t), start)
	if _, disabled := table.Len(); disabled != 0 || !slices.Equal(run(t, &table, start+minute), []int64{1}) {
		t.Error("setting it anew has not repaired it")
	}
}

func TestATickWaitsForCounts(t *testing.T) {
	table := NewTable()
	k := table.Take(table.Set("m", record(Last), minutely(t), start))
	table.Defer(k)
	table.Release(k)
	check(t, &table, true)
	if table.Due(start+minute) != nil {
		t.Error("a tick that waits for counts is due")
	}
	table.Counted()
	if got := run(t, &table, start+minute); !slices.Equal(got, []int64{1}) {
		t.Errorf("ticks %v", got)
	}
}

func TestOptionsSurviveTheirRecord(t *testing.T) {
	for _, o := range []Options{
		{},
		{
			Meta: storage.Meta{Unique: "u", Weight: 3}, Key: "k", Priority: new(uint8(0)), Delay: time.Second, TTL: time.Hour,
			Charge: new(int64(0)), Replace: true,
		},
		{Priority: new(uint8(9)), Charge: new(int64(7)), Replace: true, MaxDelay: time.Minute},
	} {
		var rec storage.Cron
		o.Store(&rec)
		if got := OptionsOf(&rec); !reflect.DeepEqual(got, o) {
			t.Errorf("%+v became %+v", o, got)
		}
	}
}

// Random calls never break the invariants, and no tick is made twice.
func TestNoTickIsMadeTwice(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		table, now := NewTable(), start
		var taken []*Tick
		last, counting := map[string]int64{}, false
		for range 300 {
			name := fmt.Sprint(rng.IntN(4))
			e := table.Get(name)
			switch rng.IntN(9) {
			case 0:
				table.Set(name, record(CatchUp(rng.IntN(3))), minutely(t), now) //nolint:gosec // small
			case 1:
				if e != nil && rng.IntN(4) == 0 {
					table.Delete(e)
				}
			case 8:
				if e != nil {
					table.Pause(e, rng.IntN(2) == 0, now)
				}
			case 2:
				now += rng.Int64N(20*minute) - 2*minute // the clock may be set back
			case 3:
				table.Counted()
				counting = false
			case 4:
				if len(taken) > 0 {
					k := taken[0]
					taken = taken[1:]
					switch {
					case !table.Holds(k):
						continue
					case rng.IntN(5) == 0:
						table.Defer(k)
						counting = true
					case k.At <= last[k.Name()]:
						t.Fatalf("seed %d: tick %d of %s after %d", seed, k.At, k.Name(), last[k.Name()])
					default:
						last[k.Name()] = k.At
						k.End(Outcome(rng.IntN(3)), "no", now) //nolint:gosec // small
					}
					table.Release(k)
				}
			default:
				if due := table.Due(now); due != nil {
					if _, steps := table.Skip(due, now); steps == 0 {
						taken = append(taken, table.Take(due))
					}
				}
			}
			if e := table.Get(name); e == nil {
				delete(last, name)
			}
			check(t, &table, counting, taken...)
		}
	}
}
