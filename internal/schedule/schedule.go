// Package schedule parses cron expressions and computes their ticks, also in time zones
// with daylight saving time. It keeps no state and reads no clock.
package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a zone database

	"github.com/netresearch/go-cron"
)

// Schedule computes the ticks of a recurring message. Ticks are instants in whole seconds,
// strictly increasing.
//
// The cron library parses expressions and finds matching wall-clock times; it works in UTC,
// where the clock never changes. This type maps those times to instants of a zone whose
// clock is put forward and back:
//
//   - An expression that leaves the hour open ("*/15 * * * *", @hourly) follows elapsed
//     time. In the hour that occurs twice its ticks occur twice; in the hour that is
//     skipped there are none.
//   - Any other expression names times of the day, each of which ticks once a day: the
//     first of two equal times, and the moment of the change for a time that is skipped.
//   - "@every" ignores the zone and counts from the time at which it was set.
type Schedule struct {
	spec  *cron.SpecSchedule
	every int64 // seconds; 0: spec says
	Zone  *time.Location
	open  bool // the expression leaves the hour open
}

// DelayMax is the longest duration that @every accepts: 100 years.
const DelayMax = 100 * 365 * 24 * time.Hour

// searchYears is how far ahead a tick is searched. The 29th of February on a given weekday
// is always found within it; a date that does not exist, such as the 30th of February, is
// not.
const searchYears = 40

// Stored parses what Parse has accepted before. Its zone may be gone since, from the machine or from the
// database; then an @every goes on, which goes by no calendar.
func Stored(expression, zone string) (*Schedule, error) {
	s, err := Parse(expression, zone)
	if err == nil {
		return s, nil
	}
	if every, gone := Parse(expression, "UTC"); gone == nil && every.every > 0 {
		return every, nil
	}
	return nil, err
}

// Parse parses an expression of five fields (minute, hour, day of the month, month, day of
// the week), of six with the seconds first, or one of @yearly, @monthly, @weekly, @daily,
// @hourly and @every with a duration. A day may be L, L-3, 15W or LW, a weekday FRI#2 or
// FRI#L. The zone is a name of the IANA database; "" is UTC. An error is one line that
// names the expression, the fault and the expected form.
func Parse(expression, zone string) (*Schedule, error) {
	if zone == "Local" { // its meaning depends on the machine
		return nil, errors.New("TZ Local, it must be a name such as Europe/Berlin")
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("TZ %.64q is not the name of a time zone, such as Europe/Berlin", zone)
	}
	lower := strings.ToLower(strings.TrimSpace(expression)) // names of days and months ignore case
	refused := func(why any) error {
		form := "it has five fields: minute hour day month weekday, or six with the seconds first"
		if strings.HasPrefix(lower, "@") {
			form = "it is @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration of at least a second, such as @every 90s"
		}
		return fmt.Errorf("cron expression %.64q: %v; %s", expression, why, form)
	}
	if strings.HasPrefix(lower, "tz=") || strings.HasPrefix(lower, "cron_tz=") {
		return nil, refused("the zone is given with TZ")
	}
	parser, err := cron.TryNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
		cron.DowOrDom | cron.Descriptor | cron.Extended)
	if err != nil {
		return nil, refused(inWords(err))
	}
	parsed, err := parser.WithMaxSearchYears(searchYears).Parse(lower)
	if err != nil {
		return nil, refused(inWords(err))
	}
	s := &Schedule{Zone: loc}
	switch p := parsed.(type) {
	case cron.ConstantDelaySchedule:
		if p.Delay > DelayMax {
			return nil, refused("longer than a century")
		}
		s.every = int64(p.Delay / time.Second)
		return s, nil
	case *cron.SpecSchedule:
		p.Location = time.UTC
		s.spec, s.open = p, ones(p.Hour) == 24
		days := ones(p.Dom) > 0 || len(p.DomConstraints) > 0
		weekdays := ones(p.Dow) > 0 || len(p.DowConstraints) > 0
		if ones(p.Second) == 0 || ones(p.Minute) == 0 || ones(p.Hour) == 0 || ones(p.Month) == 0 || !days || !weekdays {
			return nil, refused("a field is empty")
		}
		if p.Next(time.Unix(0, 0).UTC()).IsZero() {
			return nil, refused("there is no such day")
		}
		return s, nil
	default:
		return nil, refused("not understood")
	}
}

// inWords returns the fault of an expression without the library's own terms.
func inWords(err error) string {
	text := err.Error()
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Sprintf("%.32q is too large", number.Num)
		}
		return fmt.Sprintf("%.32q is not a whole number", number.Num)
	}
	switch {
	case strings.Contains(text, "parse duration"):
		return "the duration cannot be read"
	case strings.Contains(text, "option"): // of the library, such as those for H
		return "it is not understood"
	}
	return text
}

// After returns the first tick after t, in Unix nanoseconds. tick is any tick of the
// schedule, which @every counts from. 0 means that there is none.
func (s *Schedule) After(tick, t int64) int64 {
	if s.every > 0 {
		step := s.every * int64(time.Second)
		return tick + (max(t-tick, 0)/step+1)*step
	}
	if s.open {
		return s.afterOpen(t)
	}
	wall := s.wall(t)
	for {
		if wall = s.spec.Next(wall); wall.IsZero() {
			return 0
		}
		if at := s.instant(wall.Unix()); at > t {
			return at
		}
	}
}

// First returns the first tick of a schedule that is set at t.
func (s *Schedule) First(t int64) int64 {
	return s.After(t-t%int64(time.Second), t)
}

// Last returns the last tick that is not after t, by bisection. tick is a tick that is not
// after t.
func (s *Schedule) Last(tick, t int64) int64 {
	const second = int64(time.Second)
	if s.every > 0 {
		step := s.every * second
		return tick + (t-tick)/step*step
	}
	// Invariant, in seconds: there is a tick after lo and not after t, and none after hi.
	lo, hi := tick/second-1, t/second
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if at := s.After(tick, mid*second); at != 0 && at <= t {
			lo = mid
		} else {
			hi = mid
		}
	}
	return s.After(tick, lo*second)
}

// Count returns the number of ticks from tick on and before another time, at most limit.
// tick is a tick. The work depends on the days in between that have ticks, not on the
// ticks: whole days, hours and minutes are counted by the fields of the expression.
func (s *Schedule) Count(tick, before int64, limit int) int {
	if s.every > 0 {
		step := s.every * int64(time.Second)
		return int(min((before-tick+step-1)/step, int64(limit)))
	}
	n, pos := 0, tick-1 // the ticks up to pos are counted
	for n < limit && tick != 0 && tick < before {
		if ticks, end := s.unit(tick, pos, before); ticks > 0 {
			n, pos = n+ticks, end
		} else {
			n, pos = n+1, tick
		}
		tick = s.After(tick, pos)
	}
	return min(n, limit)
}

// unit returns the number of ticks of the longest calendar unit (day, hour or minute) that
// contains tick, begins after pos, ends before another time and has the same ticks as the
// expression has in any such unit; and its last nanosecond. 0 means that there is none: the
// clock is changed in the unit, or shows its times for the second time.
func (s *Schedule) unit(tick, pos, before int64) (ticks int, end int64) {
	const second = int64(time.Second)
	at := time.Unix(0, tick).In(s.Zone)
	_, offset := at.Zone()
	start, change := at.ZoneBounds()
	wall := at.Unix() + int64(offset)
	for _, u := range [3]struct {
		seconds int64
		ticks   int
	}{
		{24 * 60 * 60, ones(s.spec.Hour) * ones(s.spec.Minute) * ones(s.spec.Second)},
		{60 * 60, ones(s.spec.Minute) * ones(s.spec.Second)},
		{60, ones(s.spec.Second)},
	} {
		first := wall - wall%u.seconds - int64(offset)
		last := (first + u.seconds) * second // not in the unit
		if first*second <= pos || last > before || !change.IsZero() && !time.Unix(0, last).Before(change) {
			continue
		}
		if !start.IsZero() {
			_, earlier := start.Add(-time.Second).Zone()
			// At a change the skipped times tick, and then the earlier times are repeated,
			// for which only an expression that leaves the hour open ticks.
			settled := start.Unix() + 1
			if !s.open {
				settled += max(int64(earlier-offset), 0)
			}
			if first < settled {
				continue
			}
		}
		return u.ticks, last - 1
	}
	return 0, 0
}

// ones returns the number of values that a field of an expression has.
func ones(field uint64) int {
	const values = 1<<63 - 1 // the highest bit is a flag of the library
	return bits.OnesCount64(field & values)
}

// wall returns the wall-clock time of an instant in the zone, as if it were UTC.
func (s *Schedule) wall(t int64) time.Time {
	at := time.Unix(0, t).In(s.Zone)
	_, offset := at.Zone()
	return time.Unix(at.Unix()+int64(offset), 0).UTC()
}

// afterOpen is After for an expression that leaves the hour open: the first instant at
// which the wall clock matches.
func (s *Schedule) afterOpen(t int64) int64 {
	at := time.Unix(0, t).In(s.Zone)
	for from := at.Unix(); ; {
		_, offset := at.Zone()
		change := nextChange(at)
		wall := s.spec.Next(time.Unix(from+int64(offset), 0).UTC())
		if wall.IsZero() {
			return 0
		}
		if tick := wall.Unix() - int64(offset); change.IsZero() || tick < change.Unix() {
			return tick * int64(time.Second)
		}
		at, from = change, change.Unix()-1 // the clock changes before that tick
	}
}

// instant returns the first instant at which the wall clock shows a time, or the instant of
// the change that skips it.
func (s *Schedule) instant(wall int64) int64 {
	const most = 15 * 60 * 60 // no zone is further from UTC
	at := time.Unix(wall-most, 0).In(s.Zone)
	for {
		_, offset := at.Zone()
		change := nextChange(at)
		sec := max(wall-int64(offset), at.Unix())
		if change.IsZero() || sec < change.Unix() {
			return sec * int64(time.Second)
		}
		at = change
	}
}

// nextChange returns an instant until which the offset of the zone certainly stays the
// same; the zero time if it never changes again. It is after at.
func nextChange(at time.Time) time.Time {
	_, end := at.ZoneBounds()
	if !end.IsZero() && !end.After(at) {
		// Beyond the years of the database the bounds are computed, and for the last day of
		// a leap year the computed end is in the past.
		return at.Add(time.Hour)
	}
	return end
}
