package limits

import (
	"errors"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/internal/refusals"
)

func TestNamesAreWithinTheLimits(t *testing.T) {
	l := Default()
	for _, kind := range []struct {
		most     int
		check    func(string) error
		controls bool // are allowed
	}{
		{l.Key, l.CheckKey, true},
		{l.Throttle, l.CheckThrottleKey, true},
		{l.QueueName, l.CheckQueueName, false},
		{l.QueueName, l.CheckTopicName, false},
		{l.QueueName, l.CheckGroupName, false},
	} {
		for name, want := range map[string]error{
			"": refusals.ErrInvalid, strings.Repeat("x", kind.most): nil, strings.Repeat("x", kind.most+1): refusals.ErrTooBig, "é\xff": nil,
		} {
			if err := kind.check(name); !errors.Is(err, want) {
				t.Errorf("a name of %d bytes: %v, want %v", len(name), err, want)
			}
		}
		for _, name := range []string{"a\x00", "\x1f", "b\x7fc"} {
			if err := kind.check(name); kind.controls == errors.Is(err, refusals.ErrInvalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

func TestALimitMustLeaveRoom(t *testing.T) {
	l := Default()
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Limits){
		"no weight": func(l *Limits) { l.Weight = 0 }, "no payload": func(l *Limits) { l.Payload = 0 }, "a long key": func(l *Limits) { l.Key = 1<<15 + 1 },
	} {
		l := Default()
		if change(&l); l.Check() == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
