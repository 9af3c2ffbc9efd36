package commands

import (
	"maps"
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
			Flags: []string{"admin", "noscript", "loading", "stale"}, Quiet: true,
			Args:     []Arg{{Name: "parameter", Type: Pattern, Multiple: true}},
			Examples: []Example{{"CONFIG GET appendonly", "1) \"appendonly\"\n2) \"yes\""}, {"CONFIG GET nosuch", "(empty array)"}},
			Room:     settingsRoom,
			Local:    configGet,
		}, help("CONFIG"), configResetStat(), configRewrite(), configSet()},
	}
}

// redisSettings names what tools ask of Redis and Fila has an answer to, beside
// what can be changed.
func redisSettings() []string {
	return []string{
		"appendfsync", "appendonly", "cluster-enabled", "databases", "dir", "maxclients", "maxmemory", "maxmemory-policy", "port",
		"replica-read-only", "save", "slave-read-only", "timeout",
	}
}

// redisSetting returns the value of one of redisSettings.
func (c *Config) redisSetting(name string) string {
	switch name {
	case "appendfsync":
		switch c.Settings["storage.sync"] {
		case "interval":
			return "everysec" // the nearest that Redis has a word for
		case "never":
			return "no"
		default:
			return "always"
		}
	case "appendonly":
		return "yes" // every acknowledged write is in a log before the reply
	case "cluster-enabled":
		return "no"
	case "dir":
		return c.Settings["storage.path"]
	case "maxmemory":
		return "0"
	case "maxmemory-policy":
		return "noeviction"
	case "port":
		return strconv.Itoa(c.port())
	case "replica-read-only", "slave-read-only":
		return "yes"
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
	all := s.handler.settings()
	var f fields
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if matchesAny(in.list("parameter"), name) {
			f.text(name, all[name])
		}
	}
	f.write(w)
	return nil
}

// settings returns every setting by each of its names, with the value that counts
// now.
func (h *Handler) settings() map[string]string {
	all := make(map[string]string, len(h.cfg.Settings)+2*len(redisSettings()))
	for _, name := range redisSettings() {
		all[name] = h.cfg.redisSetting(name)
	}
	maps.Copy(all, h.cfg.Settings)
	for _, t := range h.tunables() {
		value := t.get()
		all[t.own], all[t.redis] = value, value
		if word, other := t.words[value]; other {
			all[t.redis] = word
		}
	}
	return all
}

func matchesAny(patterns [][]byte, name string) bool {
	for _, p := range patterns {
		if globMatch(strings.ToLower(string(p)), name) {
			return true
		}
	}
	return false
}
