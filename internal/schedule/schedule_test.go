package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func schedule(t testing.TB, expression, zone string) *Schedule {
	t.Helper()
	s, err := Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ticks returns the ticks of a schedule after a time and up to another.
func ticks(s *Schedule, from, to time.Time) []int64 {
	var all []int64
	for at := s.First(from.UnixNano()); at != 0 && at <= to.UnixNano(); at = s.After(at, at) {
		all = append(all, at)
	}
	return all
}

func utc(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestTicksOfAnExpression(t *testing.T) {
	for _, tt := range []struct {
		expression, zone, from string
		want                   []string // the next ones, in UTC
	}{
		{"*/20 * * * *", "", "2026-03-01 11:50:30", []string{"2026-03-01 12:00:00", "2026-03-01 12:20:00", "2026-03-01 12:40:00", "2026-03-01 13:00:00"}},
		{"*/20 * * * * *", "UTC", "2026-03-01 11:59:30", []string{"2026-03-01 11:59:40", "2026-03-01 12:00:00"}},
		{"30 6 * * Mon-Fri", "Europe/Berlin", "2026-06-05 04:30:00", []string{"2026-06-08 04:30:00", "2026-06-09 04:30:00"}},
		{"0 9 * JAN THU", "", "2026-01-01 09:00:00", []string{"2026-01-08 09:00:00"}},
		// If both a day of the month and a weekday are given, either matches.
		{"0 0 13 * FRI", "", "2026-03-01 00:00:00", []string{"2026-03-06 00:00:00", "2026-03-13 00:00:00", "2026-03-20 00:00:00"}},
		{"0 0 29 2 *", "", "2097-01-01 00:00:00", []string{"2104-02-29 00:00:00"}},
		{"0 0 L * *", "", "2027-02-01 00:00:00", []string{"2027-02-28 00:00:00", "2027-03-31 00:00:00"}},
		{"0 0 * * fri#2", "", "2026-03-01 00:00:00", []string{"2026-03-13 00:00:00", "2026-04-10 00:00:00"}},
		{"@daily", "Asia/Kolkata", "2026-03-01 00:00:00", []string{"2026-03-01 18:30:00"}},
		{"@Weekly", "", "2026-03-02 00:00:00", []string{"2026-03-08 00:00:00"}},
		{"@every 90m", "", "2026-03-01 00:00:07", []string{"2026-03-01 01:30:07", "2026-03-01 03:00:07"}},
		{"@every 1s", "", "2026-03-01 00:00:07", []string{"2026-03-01 00:00:08"}},

		// The clock is put forward from 2 to 3 at 1 UTC on 29 March in Berlin. A skipped
		// time of the day ticks at that moment, once.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28 01:00:00", []string{"2026-03-28 01:30:00", "2026-03-29 01:00:00", "2026-03-30 00:30:00"}},
		{"0,15,30 2 * * *", "Europe/Berlin", "2026-03-29 00:00:00", []string{"2026-03-29 01:00:00", "2026-03-30 00:00:00"}},
		{"0 3 * * *", "Europe/Berlin", "2026-03-29 00:00:00", []string{"2026-03-29 01:00:00", "2026-03-30 01:00:00"}},
		{"*/30 2-3 * * *", "Europe/Berlin", "2026-03-29 00:00:00", []string{"2026-03-29 01:00:00", "2026-03-29 01:30:00", "2026-03-30 00:00:00"}},
		// An expression that leaves the hour open follows elapsed time.
		{"*/30 * * * *", "Europe/Berlin", "2026-03-29 00:00:00", []string{"2026-03-29 00:30:00", "2026-03-29 01:00:00", "2026-03-29 01:30:00"}},

		// The clock is put back from 3 to 2 at 1 UTC on 25 October: 2:30 occurs at 0:30 UTC
		// and at 1:30 UTC. A time of the day ticks at the first.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00:00", []string{"2026-10-25 00:30:00", "2026-10-26 01:30:00"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25 00:40:00", []string{"2026-10-26 01:30:00"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25 01:20:00", []string{"2026-10-26 01:30:00"}},
		{"0 3 * * *", "Europe/Berlin", "2026-10-25 00:00:00", []string{"2026-10-25 02:00:00"}},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-24 23:40:00", []string{
			"2026-10-25 00:00:00", "2026-10-25 00:30:00", "2026-10-25 01:00:00", "2026-10-25 01:30:00", "2026-10-25 02:00:00",
		}},
		// A change of half an hour, on 5 April at 15 UTC.
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 00:00:00", []string{"2026-04-04 14:45:00", "2026-04-05 15:15:00"}},
		// A change at midnight, on 5 September at 4 UTC.
		{"@daily", "America/Santiago", "2026-09-05 00:00:00", []string{"2026-09-05 04:00:00", "2026-09-06 04:00:00", "2026-09-07 03:00:00"}},
		// A day that was skipped altogether, 30 December.
		{"0 9 * * *", "Pacific/Apia", "2011-12-29 00:00:00", []string{"2011-12-29 19:00:00", "2011-12-30 10:00:00", "2011-12-30 19:00:00"}},
	} {
		t.Run(fmt.Sprintf("%s %s %s", tt.expression, tt.zone, tt.from), func(t *testing.T) {
			s := schedule(t, tt.expression, tt.zone)
			at := s.First(utc(t, tt.from).UnixNano())
			for i, want := range tt.want {
				if got := time.Unix(0, at).UTC(); !got.Equal(utc(t, want)) {
					t.Fatalf("tick %d is %v, want %s", i, got, want)
				}
				at = s.After(at, at)
			}
		})
	}
}

// Beyond the years of the database, changes are computed.
func TestTicksGoOnForAsLongAsTimeDoes(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/Santiago", "Asia/Kolkata"} {
		for _, expression := range []string{"30 2 31 * *", "30 * 31 12 *", "0 0 1 1 *"} {
			s := schedule(t, expression, zone)
			n := 0
			for at := utc(t, "2030-01-01 00:00:00").UnixNano(); at < utc(t, "2110-01-01 00:00:00").UnixNano(); n++ {
				next := s.After(at, at)
				if next <= at || next-at > int64(367*24*time.Hour) {
					t.Fatalf("%s in %s: after %v comes %v", expression, zone, time.Unix(0, at).UTC(), time.Unix(0, next).UTC())
				}
				at = next
			}
			if n < 80 {
				t.Errorf("%s in %s: %d ticks", expression, zone, n)
			}
		}
	}
}

// In any zone ticks increase, the tick after a time does not depend on the tick before it,
// and Last and Count agree with a walk.
func TestTicksAgreeWithThemselves(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Pacific/Apia"} {
		for _, expression := range []string{"*/7 * * * *", "13,40 * * * *", "*/10 0-4 * * *", "0 */2 * * *", "30 1 * * *", "0 0 * * *", "15 2,3 * * *", "@every 47m"} {
			s := schedule(t, expression, zone)
			from, to := utc(t, "2026-01-01 00:00:00"), utc(t, "2027-01-01 00:00:00")
			if testing.Short() { // weeks with a change of the clock in each zone that has some
				from, to = utc(t, "2026-02-10 00:00:00"), utc(t, "2026-04-10 00:00:00")
			}
			all := ticks(s, from, to)
			if len(all) < int(to.Sub(from)/(36*time.Hour)) || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
				t.Fatalf("%s in %s: %d ticks, or not in order", expression, zone, len(all))
			}
			for i := 5; i < len(all); i += 97 {
				first := all[i-5]
				if got := s.After(first, all[i]-1); got != all[i] {
					t.Fatalf("%s in %s: just before %v comes %v", expression, zone, time.Unix(0, all[i]), time.Unix(0, got))
				}
				if got := s.Last(first, all[i]); got != all[i] {
					t.Fatalf("%s in %s: the last one up to %v is %v", expression, zone, time.Unix(0, all[i]), time.Unix(0, got))
				}
				if got := s.Last(first, all[i]-1); got != all[i-1] {
					t.Fatalf("%s in %s: the last one before %v is %v", expression, zone, time.Unix(0, all[i]), time.Unix(0, got))
				}
				if a, b, c := s.Count(first, all[i], 9), s.Count(first, all[i]+1, 9), s.Count(first, all[i], 3); a != 5 || b != 6 || c != 3 {
					t.Fatalf("%s in %s: counted %d, %d and %d", expression, zone, a, b, c)
				}
			}
		}
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	for _, tt := range [][2]string{
		{"", ""},
		{"* * * *", ""},
		{"* * * * * * *", ""},
		{"60 * * * *", ""},
		{", * * * *", ""},
		{"0 0 , * ,", ""},
		{"* * 31 feb *", ""},
		{"0 0 30 2 *", ""},
		{"H * * * *", ""},
		{"@reboot", ""},
		{"@every 10ms", ""},
		{"@every -1h", ""},
		{"@every 2000000h", ""},
		{"TZ=Europe/Berlin 0 0 * * *", ""},
		{"CRON_TZ=UTC 0 0 * * *", ""},
		{"* * * * *", "Local"},
		{"* * * * *", "Mars/Olympus"},
		{"* * * * *", "../../etc/passwd"},
	} {
		if _, err := Parse(tt[0], tt[1]); err == nil {
			t.Errorf("%q: %v", tt, err)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	for _, e := range []string{"* * * * *", "*/5 1-3,7 L * fri#2", "@every 1h", "0 0 29 2 1", "1 2 15W * *"} {
		f.Add(e, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, expression string, at int64) {
		s, err := Parse(expression, "Europe/Berlin")
		if err != nil {
			return
		}
		at = at % (1 << 32) * int64(time.Second)
		if next := s.First(at); next <= at {
			t.Fatalf("%q: after %d comes %d", expression, at, next)
		}
	})
}

func BenchmarkNextTick(b *testing.B) {
	for _, e := range []string{"* * * * *", "30 6 * * mon-fri", "0 0 29 2 *"} {
		b.Run(e, func(b *testing.B) {
			s := schedule(b, e, "Europe/Berlin")
			at := int64(1_700_000_000_000_000_000)
			for b.Loop() {
				at = s.After(at, at)
				if at > 1<<62 {
					at = 1_700_000_000_000_000_000
				}
			}
		})
	}
}

// TestCountsAreThoseOfTheTicks counts over spans with and without a change of the clock, for
// expressions that leave the hour open and for ones that do not.
func TestCountsAreThoseOfTheTicks(t *testing.T) {
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo", "Pacific/Apia"}
	fields := [][]string{
		{"0", "*/20", "7,58"}, {"*", "0", "*/15", "59", "3-20"}, {"*", "*", "0", "2", "0-3", "1,2,23", "*/6"}, {"*", "*", "L", "29-31"}, {"*", "3,10", "*"}, {"*", "*", "SUN", "fri#L"},
	}
	starts := []time.Time{ // before changes of the clock, and a leap day
		utc(t, "2026-03-28 20:00:00"), utc(t, "2026-10-24 20:00:00"), utc(t, "2026-11-01 03:00:00"), utc(t, "2026-04-04 10:00:00"),
		utc(t, "2026-10-03 10:00:00"), utc(t, "2011-12-29 00:00:00"), utc(t, "2028-02-27 00:00:00"), utc(t, "2096-12-30 00:00:00"),
	}
	r := rand.New(rand.NewPCG(1, 2))
	counted, rounds := 0, 3_000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		var parts []string
		for _, f := range fields {
			parts = append(parts, f[r.IntN(len(f))])
		}
		expression, zone := strings.Join(parts, " "), zones[r.IntN(len(zones))]
		s, err := Parse(expression, zone)
		if err != nil {
			continue
		}
		from := starts[r.IntN(len(starts))].Add(time.Duration(r.Int64N(int64(30 * time.Hour))))
		to := from.Add(time.Duration(r.Int64N(int64(100 * time.Hour)))).UnixNano()
		first := s.First(from.UnixNano())
		want := 0
		for at := first; at != 0 && at < to; at = s.After(at, at) {
			want++
		}
		counted += want
		for _, limit := range []int{1, max(want, 1), 1 << 40} {
			if got := s.Count(first, to, limit); got != min(want, limit) {
				t.Fatalf("%q in %q: %d ticks from %v to %v, want %d", expression, zone, got, from, time.Unix(0, to).UTC(), min(want, limit))
			}
		}
	}
	if counted < 33*rounds {
		t.Errorf("only %d ticks were counted", counted)
	}
}

func TestTicksOfADecadeAreCountedByDays(t *testing.T) {
	from := utc(t, "2026-01-01 00:00:00")
	to := from.AddDate(10, 0, 0)
	s := schedule(t, "* * * * * *", "Europe/Berlin")
	if got, want := s.Count(from.UnixNano(), to.UnixNano(), 1<<60), int(to.Sub(from)/time.Second); got != want {
		t.Errorf("%d ticks, want %d", got, want)
	}
}
