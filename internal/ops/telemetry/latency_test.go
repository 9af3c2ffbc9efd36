package telemetry

import (
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

func TestLatencyIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := NewLatency(func() time.Time { return now }, time.Millisecond)
	for range 2 * SamplesMax {
		l.Observe(engine.ActivityTurn, time.Second)
		now = now.Add(time.Second)
	}
	samples, _ := l.History(EventTurn)
	if len(samples) != SamplesMax || samples[len(samples)-1].At != now.Unix()-1 {
		t.Errorf("%d samples, the last of %d", len(samples), samples[len(samples)-1].At)
	}
}
