package broker

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
)

func TestTheLevelOfTheLogCanBeChangedWhileItIsInUse(t *testing.T) {
	var out bytes.Buffer
	level := newLogLevel("warn")
	log := level.on(zerolog.New(&out).Level(zerolog.WarnLevel))
	lines := func() int {
		defer out.Reset()
		log.Debug().Msg("a")
		log.Info().Msg("b")
		log.Warn().Msg("c")
		return bytes.Count(out.Bytes(), []byte("\n"))
	}
	for _, step := range []struct {
		set, get string
		lines    int
	}{{"", "warn", 1}, {"debug", "debug", 3}, {"error", "error", 0}, {"info", "info", 2}, {"nonsense", "info", 2}} {
		if step.set != "" {
			level.Set(step.set)
		}
		if got := level.Get(); got != step.get {
			t.Errorf("after %q the level is %q", step.set, got)
		}
		if got := lines(); got != step.lines {
			t.Errorf("at %s %d lines were written, want %d", step.get, got, step.lines)
		}
	}
}
