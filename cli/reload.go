package cli

import (
	"context"
	"os"

	"github.com/rs/zerolog"
)

// Reload is a configuration that has been reloaded while the broker runs.
type Reload struct {
	Config  Config
	Changed []string // names of the settings that differ from the last load
}

// hangups handles SIGHUP while the broker runs. If the log goes to a terminal, the signal means
// that the terminal was closed, and the broker shuts down. Otherwise the configuration is
// reloaded; if it cannot be read, the broker logs an error and keeps the current one.
type hangups struct {
	signals  <-chan os.Signal
	terminal bool
	stop     func()
	load     func() (*Loaded, error)
	current  Config // of the last successful load
	log      zerolog.Logger
	reloads  chan<- Reload
}

// run handles signals until ctx is done.
func (h *hangups) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.signals:
		}
		if h.terminal {
			h.log.Info().Msg("SIGHUP: the terminal is gone")
			h.stop()
			return
		}
		loaded, err := h.load()
		if err != nil {
			h.log.Error().Err(err).Msg("SIGHUP: invalid configuration, the current one stays in effect")
			continue
		}
		h.log.Info().Str("file", loaded.File).Msg("SIGHUP: configuration reloaded")
		next := Reload{Config: loaded.Config, Changed: changed(&h.current, &loaded.Config)}
		select {
		case h.reloads <- next:
			h.current = loaded.Config
		case <-ctx.Done():
			return
		}
	}
}

// changed returns the names of the settings in which two configurations differ.
func changed(a, b *Config) (names []string) {
	before := settings(a)
	for i, s := range settings(b) {
		if s.value.String() != before[i].value.String() {
			names = append(names, s.name)
		}
	}
	return names
}
