package cluster

import (
	"fmt"
	"io"
	stdlog "log" //nolint:depguard // the type is part of the interface
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// repeatAfter is the least time between two lines with the same text. A node that is away causes
// several a second.
const repeatAfter = 10 * time.Second

// hashicorpLog passes the lines of Raft and of its log on: errors and warnings as warnings, each text
// at most once in repeatAfter, the rest as debug lines. What operators need to know is logged by this
// package itself.
func hashicorpLog(log zerolog.Logger) hclog.Logger {
	return &bridge{log: log.With().Str("part", "raft").Logger(), seen: &seen{at: map[string]time.Time{}}}
}

// bridge implements hclog.Logger.
type bridge struct {
	log  zerolog.Logger
	name string
	args []any
	seen *seen
}

// seen knows when a text was logged last. The texts are constants of the libraries, so they are few.
type seen struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (s *seen) lately(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.at[text]) < repeatAfter {
		return true
	}
	s.at[text] = now
	return false
}

// Log implements hclog.Logger.
func (b *bridge) Log(level hclog.Level, msg string, args ...any) {
	event := b.log.Debug()
	if level >= hclog.Warn && level != hclog.Off && !b.seen.lately(msg) {
		event = b.log.Warn()
	}
	if event == nil {
		return // not logged at all
	}
	all := append(append([]any{}, b.args...), args...)
	for i := 0; i+1 < len(all); i += 2 {
		event = event.Str(fmt.Sprint(all[i]), fmt.Sprint(all[i+1]))
	}
	event.Msg(msg)
}

// Trace implements hclog.Logger.
func (b *bridge) Trace(msg string, args ...any) { b.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (b *bridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (b *bridge) Info(msg string, args ...any) { b.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (b *bridge) Warn(msg string, args ...any) { b.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (b *bridge) Error(msg string, args ...any) { b.Log(hclog.Error, msg, args...) }

// IsTrace implements hclog.Logger.
func (b *bridge) IsTrace() bool { return false }

// IsDebug implements hclog.Logger.
func (b *bridge) IsDebug() bool { return b.log.GetLevel() <= zerolog.DebugLevel }

// IsInfo implements hclog.Logger.
func (b *bridge) IsInfo() bool { return b.IsDebug() }

// IsWarn implements hclog.Logger.
func (b *bridge) IsWarn() bool { return true }

// IsError implements hclog.Logger.
func (b *bridge) IsError() bool { return true }

// ImpliedArgs implements hclog.Logger.
func (b *bridge) ImpliedArgs() []any { return b.args }

// With implements hclog.Logger.
func (b *bridge) With(args ...any) hclog.Logger {
	w := *b
	w.args = append(append([]any{}, b.args...), args...)
	return &w
}

// Name implements hclog.Logger.
func (b *bridge) Name() string { return b.name }

// Named implements hclog.Logger.
func (b *bridge) Named(name string) hclog.Logger { return b.ResetNamed(name) }

// ResetNamed implements hclog.Logger.
func (b *bridge) ResetNamed(name string) hclog.Logger {
	w := *b
	w.name = name
	return &w
}

// SetLevel implements hclog.Logger: the level is that of the broker's log.
func (b *bridge) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (b *bridge) GetLevel() hclog.Level {
	if b.IsDebug() {
		return hclog.Debug
	}
	return hclog.Warn
}

// StandardLogger implements hclog.Logger.
func (b *bridge) StandardLogger(o *hclog.StandardLoggerOptions) *stdlog.Logger {
	return stdlog.New(b.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (b *bridge) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{b} }

type lineWriter struct{ b *bridge }

// Write implements io.Writer.
func (w lineWriter) Write(p []byte) (int, error) {
	w.b.Debug(string(p))
	return len(p), nil
}
