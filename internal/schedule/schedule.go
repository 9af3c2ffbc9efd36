// Package schedule reads cron expressions and says when they tick, in zones whose clocks
// are put forward and back. It keeps no state and reads no clock.
package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the zones, on machines that have none of their own

	"github.com/netresearch/go-cron"
)

// Schedule says when a recurring message is due. Its ticks are instants, in whole
// seconds, each later than the one before.
//
// The library reads expressions and finds the wall-clock times that match; it
// is asked about a clock that never changes, and how those times become
// instants in a zone whose clock is put forward and back is said here:
//
//   - An expression that leaves the hour open ("*/15 * * * *", @hourly) goes
//     by the time that passes. In the hour that comes twice its ticks come twice,
//     in the one that is left out there are none.
//   - Any other names times of the day, each of which comes once a day: of two
//     that read the same the first, and in place of one that is left out the
//     moment at which the clock is put forward.
//   - "@every" knows no zone: it counts from when it was set.
type Schedule struct {
	spec  *cron.SpecSchedule
	every int64 // seconds; 0: spec says
	Zone  *time.Location
	open  bool
}

// DelayMax is the longest delay of @every that is accepted: 100 years.
const DelayMax = 100 * 365 * 24 * time.Hour

// searchYears is how far ahead a tick is looked for: a 29 February on a certain
// weekday is never further off than this, a 30 February is.
const searchYears = 40

// ParseSchedule reads an expression of five fields (minute, hour, day of the
// month, month, day of the week), of six with the seconds before them, or one of
// @yearly, @monthly, @weekly, @daily, @hourly and @every with a duration. A day
// may be written L, L-3, 15W or LW, a weekday FRI#2 or FRI#L. The zone is a name
// of the IANA database; "" is UTC.
func Parse(expression, zone string) (*Schedule, error) {
	if zone == "Local" { // what that means differs by machine
		return nil, errors.New("TZ Local, it must be a name such as Europe/Berlin")
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("TZ %.64q is not the name of a time zone, such as Europe/Berlin", zone)
	}
	lower := strings.ToLower(strings.TrimSpace(expression)) // names of days and months are read in any case
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
		const values = 1<<63 - 1 // the bit above says how a field was written
		p.Location = time.UTC
		s.spec, s.open = p, bits.OnesCount64(p.Hour&values) == 24
		days := p.Dom&values != 0 || len(p.DomConstraints) > 0
		weekdays := p.Dow&values != 0 || len(p.DowConstraints) > 0
		if p.Second&values == 0 || p.Minute&values == 0 || p.Hour&values == 0 || p.Month&values == 0 || !days || !weekdays {
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

// inWords says what is wrong with an expression without the words of the library and of
// the functions that it calls.
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

// after returns the first tick after a time, given that another is one; both are
// Unix nanoseconds. 0: there is none, which no calendar in use has.
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

// first returns the first tick of a schedule that begins at a time.
func (s *Schedule) First(t int64) int64 {
	return s.After(t-t%int64(time.Second), t)
}

// last returns the last tick that is not after a time, given one that is not.
func (s *Schedule) Last(tick, t int64) int64 {
	const second = int64(time.Second)
	if s.every > 0 {
		step := s.every * second
		return tick + (t-tick)/step*step
	}
	// In seconds: after one of lo there is a tick in time, after one of hi there
	// is none.
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

// count returns how many ticks there are from one on and before a time, at most
// limit.
func (s *Schedule) Count(tick, before int64, limit int) int {
	if s.every > 0 {
		step := s.every * int64(time.Second)
		return int(min((before-tick+step-1)/step, int64(limit)))
	}
	n := 0
	for ; n < limit && tick != 0 && tick < before; n++ {
		tick = s.After(tick, tick)
	}
	return n
}

// wall returns what the zone's clock reads at an instant, as if it were UTC.
func (s *Schedule) wall(t int64) time.Time {
	at := time.Unix(0, t).In(s.Zone)
	_, offset := at.Zone()
	return time.Unix(at.Unix()+int64(offset), 0).UTC()
}

// afterOpen returns the first instant after t at which the zone's clock reads
// what the expression says.
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
		at, from = change, change.Unix()-1 // the clock is changed before that
	}
}

// instant returns when the zone's clock reads so for the first time, or is put
// past it.
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

// nextChange returns until when the clock of the instant's zone certainly stays
// as it is, the zero time if for ever. It is after the instant.
func nextChange(at time.Time) time.Time {
	_, end := at.ZoneBounds()
	if !end.IsZero() && !end.After(at) {
		// For years beyond those of the database the bounds are worked out, and the
		// last day of a leap year is not within them.
		return at.Add(time.Hour)
	}
	return end
}
