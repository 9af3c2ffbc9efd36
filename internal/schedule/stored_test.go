package schedule

import "testing"

// An interval outlives the zone that it was set with, and nothing else does.
func TestAnIntervalOutlivesItsZone(t *testing.T) {
	if s, err := Stored("@every 90s", "Gone/Zone"); err != nil || s.After(1_000_000_000_000_000_000, 1_000_000_000_000_000_000) != 1_000_000_090_000_000_000 {
		t.Errorf("@every in a zone that is gone: %v, %v", s, err)
	}
	for _, expression := range []string{"@daily", "0 5 * * *", "@every soon"} {
		if _, err := Stored(expression, "Gone/Zone"); err == nil {
			t.Errorf("%s in a zone that is gone is accepted", expression)
		}
	}
	if _, err := Parse("@every 90s", "Gone/Zone"); err == nil {
		t.Error("an unknown zone is accepted for a new one")
	}
}
