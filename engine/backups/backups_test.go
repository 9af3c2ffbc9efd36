package backups

import (
	"errors"
	"testing"
	"time"
)

func TestOneBackupAtATimeAndItsEnd(t *testing.T) {
	var s State
	if got := s.Status(); got != (Status{}) || s.Running() {
		t.Fatalf("before any backup: %+v", got)
	}
	s.Remember(time.Unix(50, 0))
	if got := s.Status(); got != (Status{LastAt: time.Unix(50, 0)}) {
		t.Errorf("after a start: %+v", got)
	}
	refused, broken := errors.New("refused"), errors.New("broken")
	if _, err := s.Begin("x", 1, func(string) error { return refused }, nil); !errors.Is(err, refused) || s.Running() {
		t.Errorf("a name that is refused: %v, running: %v", err, s.Running())
	}
	fine := func(string) error { return nil }
	begin := func(name string, now time.Time, fail error) *Run {
		r, err := s.Begin(name, now.UnixNano(), fine, func(name string) (string, error) { return "/backups/" + name, fail })
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := begin("", time.Unix(100, 0), nil)
	if got, err := r.Result(); r.Ended() || err != nil || got != (Result{Name: "19700101-000140.000"}) {
		t.Errorf("begun: %+v, %v", got, err)
	}
	if got := s.Status(); !got.Running || !got.Since.Equal(time.Unix(100, 0)) || !got.LastAt.Equal(time.Unix(50, 0)) {
		t.Errorf("under way: %+v", got)
	}
	r.Take()
	s.End(r, time.Unix(103, 0).UnixNano())
	want := Result{Name: "19700101-000140.000", Path: "/backups/19700101-000140.000", Took: 3 * time.Second}
	if got, err := r.Result(); !r.Ended() || err != nil || got != want {
		t.Errorf("ended: %+v, %v", got, err)
	}
	good := Status{LastAt: time.Unix(103, 0), Took: 3 * time.Second}
	if got := s.Status(); got != good {
		t.Errorf("after it: %+v", got)
	}
	for _, fail := range []func() *Run{
		func() *Run { r := begin("a", time.Unix(200, 0), broken); r.Take(); return r },
		func() *Run { r := begin("b", time.Unix(200, 0), nil); r.Lose(); return r },
	} {
		r := fail()
		s.End(r, time.Unix(201, 0).UnixNano())
		if _, err := r.Result(); err == nil || !r.Ended() {
			t.Errorf("a backup that failed has ended: %v, %v", r.Ended(), err)
		}
		if got := s.Status(); got != (Status{LastAt: good.LastAt, Took: good.Took, Failed: true}) {
			t.Errorf("after one that failed: %+v", got)
		}
	}
}
