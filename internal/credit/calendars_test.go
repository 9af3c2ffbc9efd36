package credit

import (
	"testing"

	"github.com/faisca/fila/internal/schedule"
)

func TestACalendarIsParsedOnceAndEndsWithItsLastAccount(t *testing.T) {
	var c Calendars
	parsed := 0
	parse := func() *schedule.Schedule { parsed++; return nil }
	a, b := c.Take(Ticks{"@daily", ""}, parse), c.Take(Ticks{"@daily", ""}, parse)
	c.Take(Ticks{"@daily", "Europe/Berlin"}, parse)
	if a != b || parsed != 2 {
		t.Errorf("the same calendar: %v; %d were parsed, want 2", a == b, parsed)
	}
	c.Return(a)
	if accounts, calendars := c.Taken(); accounts != 2 || calendars != 2 {
		t.Errorf("%d accounts have %d calendars, want 2 and 2", accounts, calendars)
	}
	c.Return(b)
	c.Return(nil)
	if accounts, calendars := c.Taken(); accounts != 1 || calendars != 1 {
		t.Errorf("%d accounts have %d calendars, want 1 and 1", accounts, calendars)
	}
}
