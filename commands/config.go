package commands

import (
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/resp"
)

func config() Spec {
	return Spec{
		Name: "CONFIG", Group: "server", Since: "2.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for server configuration commands.",
		Subcommands: []Spec{{
			Name: "GET", Group: "server", Since: "2.0.0", Complexity: "O(N) where N is the number of settings",
			Summary: "Returns the settings whose names match one of the patterns.",
			Differs: "Shows Fila's settings under their own names, and of Redis' those that tools ask for: " +
				strings.Join(redisSettings(), ", ") + ".",
			Flags:    []string{"admin", "noscript", "loading", "stale"},
			Args:     []Arg{{Name: "parameter", Type: Pattern, Multiple: true}},
			Examples: []Example{{"CONFIG GET appendonly", "1) \"appendonly\"\n2) \"yes\""}, {"CONFIG GET nosuch", "(empty array)"}},
			Local:    configGet,
		}, help("CONFIG")},
	}
}

// redisSettings names what tools ask of Redis and Fila has an answer to.
func redisSettings() []string {
	return []string{"appendonly", "databases", "maxclients", "save", "timeout"}
}

// redisSetting returns the value of one of redisSettings.
func (c *Config) redisSetting(name string) string {
	switch name {
	case "appendonly":
		return "yes" // every acknowledged write is in a log before the reply
	case "databases":
		return "1"
	case "maxclients":
		return strconv.Itoa(c.MaxClients)
	case "timeout":
		return strconv.FormatInt(int64(c.IdleTimeout.Seconds()), 10)
	default:
		return "" // save: there are no snapshots
	}
}

func configGet(s *Session, in *input, w *resp.Writer) error {
	cfg := &s.handler.cfg
	names := redisSettings()
	for name := range cfg.Settings {
		names = append(names, name)
	}
	slices.Sort(names)
	var f fields
	for _, name := range slices.Compact(names) {
		if !matchesAny(in.list("parameter"), name) {
			continue
		}
		if value, own := cfg.Settings[name]; own {
			f.text(name, value)
			continue
		}
		f.text(name, cfg.redisSetting(name))
	}
	f.write(w)
	return nil
}

func matchesAny(patterns [][]byte, name string) bool {
	for _, p := range patterns {
		if globMatch(strings.ToLower(string(p)), name) {
			return true
		}
	}
	return false
}
