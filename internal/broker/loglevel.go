package broker

import (
	"sync/atomic"

	"github.com/rs/zerolog"
)

// logLevel is the level of the log, which CONFIG SET can change. A hook asks it
// about each line: a logger's own level is a copy that cannot be changed from outside.
type logLevel struct{ at atomic.Int32 }

func newLogLevel(name string) *logLevel {
	l := new(logLevel)
	l.Set(name)
	return l
}

// on returns the logger with this level in place of its own.
func (l *logLevel) on(log zerolog.Logger) zerolog.Logger {
	return log.Level(zerolog.DebugLevel).Hook(l)
}

// Run is called for each line.
func (l *logLevel) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if int32(level) < l.at.Load() {
		e.Discard()
	}
}

// Get returns the level's name.
func (l *logLevel) Get() string { return zerolog.Level(l.at.Load()).String() } //nolint:gosec // Set has put one there

// Set changes the level; one of no known name changes nothing.
func (l *logLevel) Set(name string) {
	if level, err := zerolog.ParseLevel(name); err == nil {
		l.at.Store(int32(level))
	}
}
