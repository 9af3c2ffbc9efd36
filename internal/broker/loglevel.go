package broker

import (
	"sync/atomic"

	"github.com/rs/zerolog"
)

// logLevel is the log level, which CONFIG SET can change while the broker runs. It is a
// hook that filters each line, because the level of a zerolog.Logger is a copy.
type logLevel struct{ at atomic.Int32 }

func newLogLevel(name string) *logLevel {
	l := new(logLevel)
	l.Set(name)
	return l
}

// on returns the logger with this level instead of its own.
func (l *logLevel) on(log zerolog.Logger) zerolog.Logger {
	return log.Level(zerolog.DebugLevel).Hook(l)
}

// Run implements zerolog.Hook: it discards lines below the level.
func (l *logLevel) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if int32(level) < l.at.Load() {
		e.Discard()
	}
}

// Get returns the name of the level.
func (l *logLevel) Get() string { return zerolog.Level(l.at.Load()).String() }

// Set changes the level. An unknown name changes nothing.
func (l *logLevel) Set(name string) {
	if level, err := zerolog.ParseLevel(name); err == nil {
		l.at.Store(int32(level))
	}
}
