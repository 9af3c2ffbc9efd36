package cli

import (
	"io"
	"time"

	"github.com/rs/zerolog"
)

// newLogger creates the logger of the process. The level has been validated, so it parses.
func newLogger(cfg Log, w io.Writer, terminal bool) zerolog.Logger {
	if cfg.Format == "console" || cfg.Format == "auto" && terminal {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !terminal, TimeFormat: "15:04:05.000", TimeLocation: time.Local}
	}
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(level).Hook(stamp{})
}

// stamp adds the time to every line, in milliseconds and UTC, so that lines of several machines can
// be merged. It is a hook because the library's time format is a global variable.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
