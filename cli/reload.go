package cli

import (
	"context"
	"os"

	"github.com/rs/zerolog"
)

// Reload is a configuration that was read again while the broker runs.
type Reload struct {
	Config  Config
	Changed []string // the settings that are other than when the configuration was read last
}

// hangups handles SIGHUP while the broker runs. Where the log goes to a terminal, the
// signal says that the terminal is gone: the broker stops in order. Elsewhere it asks for
// the configuration to be read again; one that cannot be read changes nothing.
type hangups struct {
	signals  <-chan os.Signal
	terminal bool
	stop     func()
	load     func() (*Loaded, error)
	current  Config // as it was read last
	log      zerolog.Logger
	reloads  chan<- Reload
}

// run ends with ctx.
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
			h.log.Error().Err(err).Msg("SIGHUP: the configuration cannot be read, nothing has changed")
			continue
		}
		h.log.Info().Str("file", loaded.File).Msg("SIGHUP: configuration read again")
		next := Reload{Config: loaded.Config, Changed: changed(&h.current, &loaded.Config)}
		select {
		case h.reloads <- next:
			h.current = loaded.Config
		case <-ctx.Done():
			return
		}
	}
}

// changed names the settings in which two configurations differ.
func changed(a, b *Config) (names []string) {
	before := settings(a)
	for i, s := range settings(b) {
		if s.value.String() != before[i].value.String() {
			names = append(names, s.name)
		}
	}
	return names
}
