package timeline

import (
	"math/rand/v2"
	"testing"
	"time"
)

type pair [2]uint32

// Lines have the same numbers as a list that has every step, for as far back as each resolution goes, although they
// are not set at steps without changes before them; and never more points than steps and one.
func TestLinesHaveWhatWasSet(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // reproducible on purpose
		var l Lines[pair]
		var now pair
		all := map[uint32]pair{}
		const begun = 999_900
		step, from := uint32(begun), uint32(begun)
		for range 400 {
			for range rng.IntN(4) * rng.IntN(100) { // nothing happens, and nothing looks
				all[step] = now
				step++
			}
			all[step] = now
			l.Set(Tens, from, step, now)
			for r := range Resolution(Resolutions) {
				if n := uint32(len(l.Points(r))); n > r.Steps()+1 {
					t.Fatalf("seed %d: %d points of resolution %d", seed, n, r)
				}
				for back := range r.Steps() {
					at := step/r.Every() - back
					if at*r.Every() < begun {
						break
					}
					if got, _ := l.At(r, at); got != all[at*r.Every()] {
						t.Fatalf("seed %d: %d steps of resolution %d back %v, want %v", seed, back, r, got, all[at*r.Every()])
					}
				}
			}
			step++
			from = step
			if rng.IntN(3) > 0 {
				now[rng.IntN(2)] += rng.Uint32()
			}
		}
	}
}

func TestLinesThatDoNotChangeTakeNoMemory(t *testing.T) {
	var l Lines[pair]
	for step := range uint32(10_000) {
		l.Set(Tens, step, step, pair{})
	}
	if l[Seconds].points != nil || l[Tens].points != nil || l.Changed() != 0 {
		t.Errorf("points of nothing, the last one at %d", l.Changed())
	}
	for step := range uint32(10_000) {
		l.Set(Minutes, step, step, pair{step + 1})
	}
	if n := uint32(len(l.Points(Minutes))); n < Minutes.Steps() || n > Minutes.Steps()+1 || l[Tens].points != nil {
		t.Errorf("%d points of %d minutes", n, Minutes.Steps())
	}
	if got := l.Changed(); got != 9996 {
		t.Errorf("the last minute that changed begins at %d", got)
	}
	for step := uint32(10_000); step < 12_000; step++ {
		l.Set(Minutes, step, step, pair{10_000})
	}
	for r := range Tens {
		if p := l.Points(r); len(p) != 1 || cap(p) != 1 {
			t.Errorf("%d points of resolution %d, room for %d", len(p), r, cap(p))
		}
	}
}

// A clock that has gone back leaves nothing behind it.
func TestLinesAreCut(t *testing.T) {
	var l Lines[pair]
	for step := uint32(600); step < 700; step++ {
		l.Set(Tens, step, step, pair{step})
	}
	l.Cut(655)
	for r := range Resolution(Resolutions) {
		for _, p := range l.Points(r) {
			if p.Step*r.Every() > 655 {
				t.Errorf("step %d of resolution %d is left", p.Step, r)
			}
		}
	}
	if got := l.Last(); got != (pair{654}) {
		t.Errorf("the last numbers are %v", got)
	}
	l.Set(Tens, 656, 656, pair{7})
	if got, _ := l.At(Seconds, 656); got != (pair{7}) {
		t.Errorf("%v", got)
	}
}

// Places are rising, end with the newest step, and are as fine as the time that they cover and a start allow.
func TestPlacesAreAsFineAsTheTimeAllows(t *testing.T) {
	const now = 1_000_007
	for name, tt := range map[string]struct {
		known    Known
		last     uint32
		coarsest Resolution
		n        int
		first    Place
	}{
		"ten minutes":                   {Known{1, 1, now}, 60, Tens, 60, Place{Seconds, now - 59}},
		"what there is":                 {Known{now - 5, now - 5, now}, 8640, Tens, 6, Place{Seconds, now - 5}},
		"an hour":                       {Known{1, 1, now}, 360, Tens, 61, Place{Minutes, (now - 359 + 5) / 6}},
		"a day":                         {Known{1, 1, now}, 8640, Tens, 145, Place{Tens, (now - 8639 + 59) / 60}},
		"more than there can be":        {Known{1, 1, now}, 1 << 30, Tens, 145, Place{Tens, (now - 8639 + 59) / 60}},
		"more than a key has":           {Known{1, 1, now}, 8640, Minutes, 61, Place{Minutes, (now - 359 + 5) / 6}},
		"minutes from before a start":   {Known{1, now - 3, now}, 90, Tens, 19, Place{Minutes, (now - 89 + 5) / 6}},
		"nothing is recorded":           {Known{}, 60, Tens, 0, Place{}},
		"it begins later":               {Known{now + 1, 1, now}, 60, Tens, 0, Place{}},
		"a start, and a day is asked":   {Known{1, now, now}, 8640, Tens, 145, Place{Tens, (now - 8639 + 59) / 60}},
		"the newest step, nothing more": {Known{1, 1, now}, 1, Tens, 1, Place{Seconds, now}},
	} {
		places := tt.known.Places(tt.last, tt.coarsest)
		if len(places) != tt.n || tt.n > 0 && places[0] != tt.first {
			t.Errorf("%s: %d places, want %d; %v", name, len(places), tt.n, places)
			continue
		}
		for i, p := range places {
			if i > 0 && p.Begin() <= places[i-1].Begin() || i == len(places)-1 && p.Begin() != now {
				t.Errorf("%s: place %d is %v", name, i, p)
			}
		}
	}
}

func TestStepsBeginAtTheirLength(t *testing.T) {
	at := time.Date(2026, 1, 31, 14, 0, 9, 999, time.UTC)
	if got := time.Unix(0, Begin(StepAt(at.UnixNano()))).UTC(); !got.Equal(time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC)) {
		t.Errorf("%v is in the step of %v", at, got)
	}
	for r, want := range []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour} {
		if got := time.Duration(Resolution(r).Span()) * Length; got != want {
			t.Errorf("resolution %d goes back %v", r, got)
		}
	}
}
