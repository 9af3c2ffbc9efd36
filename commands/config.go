package commands

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/resp"
)

func config() Spec {
	return container("CONFIG", "server", "2.0.0", "server configuration commands",
		Spec{
			Name: "GET", Group: "server", Since: "2.0.0", Complexity: "O(N) where N is the number of settings", Returns: "map",
			Summary: "Returns the settings whose names match one of the patterns.",
			Differs: "Shows Fila's settings under their own names, and of Redis' those that tools ask for: " +
				strings.Join(redisSettings(), ", ") + ".",
			Flags: []string{"admin", "noscript", "loading", "stale"}, Quiet: true,
			Args:     []Arg{{Name: "parameter", Type: Pattern, Multiple: true}},
			Examples: []Example{{"CONFIG GET appendonly", "1) \"appendonly\"\n2) \"yes\""}, {"CONFIG GET nosuch", "(empty array)"}},
			Room:     settingsRoom,
			Memory:   "all settings",
			Local:    configGet,
		}, configResetStat(), configRewrite(), configSet())
}

// redisSettings are settings of Redis that tools read and that Fila answers, besides the tunables.
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
			return "everysec" // the closest value of Redis
		case "never":
			return "no"
		default:
			return "always"
		}
	case "appendonly":
		return "yes" // acknowledged writes are logged before the reply
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
		if matchesAny(in.List("parameter"), name) {
			f.text(name, all[name])
		}
	}
	f.write(w)
	return nil
}

// settings returns the current values of all settings, under each of their names.
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
		if glob.Match(strings.ToLower(string(p)), name) {
			return true
		}
	}
	return false
}

// tunable is a setting that CONFIG SET can change. The change lasts until the server stops; the
// configuration file is not written.
type tunable struct {
	redis string // its name in Redis
	own   string // its full name in Fila
	get   func() string
	words map[string]string // Redis' names of values, where they differ
	// check returns a function that sets the value, or the reason why the value is invalid.
	check func(value string) (set func(), err error)
}

// tunables returns all tunables, sorted by their names in Redis.
func (h *Handler) tunables() []tunable {
	all := []tunable{
		integerSetting("latency-monitor-threshold", "latency.threshold_ms", 0, math.MaxInt32, h.latency.Threshold.Load, h.latency.Threshold.Store),
		integerSetting("slowlog-log-slower-than", "slowlog.slower_than_us", -1, int64(time.Hour/time.Microsecond), h.slow.Threshold.Load, h.slow.Threshold.Store),
		integerSetting("slowlog-max-len", "slowlog.max_entries", 0, SlowEntriesMax, h.slow.Max.Load, h.slow.Max.Store),
	}
	if h.cfg.LogLevel != nil {
		all = append(all, logLevel(h.cfg.LogLevel))
	}
	return all
}

// SlowEntriesMax bounds the length of the slow log. An entry takes at most 4 KiB.
const SlowEntriesMax = 10_000

func integerSetting(redis, own string, least, most int64, get func() int64, set func(int64)) tunable {
	return tunable{
		redis: redis, own: own,
		get: func() string { return strconv.FormatInt(get(), 10) },
		check: func(value string) (func(), error) {
			n, ok := command.ParseInt([]byte(value))
			if !ok {
				return nil, cannotSet(redis, "argument couldn't be parsed into an integer")
			}
			if n < least || n > most {
				return nil, cannotSet(redis, "argument must be between "+strconv.FormatInt(least, 10)+" and "+strconv.FormatInt(most, 10)+" inclusive")
			}
			return func() { set(n) }, nil
		},
	}
}

// LogLevel is the level of the log. Any goroutine may change it at any time.
type LogLevel interface {
	Get() string
	Set(level string)
}

// logLevel accepts the levels of Fila and of Redis, whose verbose and notice both mean info.
func logLevel(level LogLevel) tunable {
	own := map[string]string{
		"debug": "debug", "verbose": "info", "notice": "info", "info": "info", "warning": "warn", "warn": "warn", "error": "error",
	}
	return tunable{
		redis: "loglevel", own: "log.level", get: level.Get,
		words: map[string]string{"info": "notice", "warn": "warning", "error": "warning"},
		check: func(value string) (func(), error) {
			to, ok := own[strings.ToLower(value)]
			if !ok {
				return nil, cannotSet("loglevel", "argument must be one of the following: debug, info, warn, error, or Redis' verbose, notice, warning")
			}
			return func() { level.Set(to) }, nil
		},
	}
}

func cannotSet(name, why string) error {
	return command.Refuse("ERR", "CONFIG SET failed (possibly related to argument '"+name+"') - "+why)
}

func configSet() Spec {
	return Spec{
		Name: "SET", Group: "server", Since: "2.0.0", Complexity: "O(N) where N is the number of settings", Returns: "status",
		Summary: "Changes settings of the running server, all or none, until it stops.",
		Differs: "Changes loglevel, latency-monitor-threshold, slowlog-log-slower-than and slowlog-max-len, also by Fila's names for them. " +
			"All others are set in the file, the environment or by a flag, and take a restart.",
		Flags: []string{"admin", "noscript", "loading", "stale"}, Tips: []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		Args: []Arg{{Name: "data", Type: Block, Multiple: true, Args: []Arg{
			{Name: "parameter", Type: String}, {Name: "value", Type: String},
		}}},
		Examples: []Example{{"CONFIG SET slowlog-log-slower-than 50000", "OK"}, {"CONFIG GET slowlog-log-slower-than", "1) \"slowlog-log-slower-than\"\n2) \"50000\""}},
		Local:    runConfigSet,
	}
}

func runConfigSet(s *Session, in *input, w *resp.Writer) error {
	words := in.List("data")
	if len(words)%2 != 0 {
		return command.WrongArity(in.Cmd)
	}
	set := make(map[string]func(), len(words)/2)
	for i := 0; i < len(words); i += 2 {
		name := strings.ToLower(string(words[i]))
		t, err := s.handler.tunable(name)
		if err != nil {
			return err
		}
		if set[t.redis] != nil {
			return cannotSet(command.Clip(words[i]), "duplicate parameter")
		}
		if set[t.redis], err = t.check(string(words[i+1])); err != nil {
			return err
		}
	}
	for _, change := range set {
		change()
	}
	w.OK()
	return nil
}

// tunable returns the tunable of a name in lower case, or an error that says why it cannot be set.
func (h *Handler) tunable(name string) (tunable, error) {
	for _, t := range h.tunables() {
		if t.redis == name || t.own == name {
			return t, nil
		}
	}
	if _, known := h.settings()[name]; known {
		return tunable{}, cannotSet(name, "can't set immutable config: set it in the file, the environment or by a flag and start Fila again")
	}
	return tunable{}, command.Refuse("ERR", "Unknown option or number of arguments for CONFIG SET - '"+command.Clip([]byte(name))+"'")
}

func configResetStat() Spec {
	return Spec{
		Name: "RESETSTAT", Group: "server", Since: "2.0.0", Complexity: "O(N) where N is the number of commands", Returns: "status",
		Summary:  "Resets the counters of commands, errors and connections in INFO.",
		Differs:  "The counters of queues and of the engine, in FILA.STATS and the section Fila, are not reset.",
		Flags:    []string{"admin", "noscript", "loading", "stale"},
		Examples: []Example{{"CONFIG RESETSTAT", "OK"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			h := s.handler
			h.calls.Reset()
			zero := h.counters()
			h.zero.Store(&zero)
			w.OK()
			return nil
		},
	}
}

func configRewrite() Spec {
	return Spec{
		Name: "REWRITE", Group: "server", Since: "2.8.0", Complexity: "O(1)", Returns: "error",
		Summary:  "Refused: Fila does not write its configuration.",
		Differs:  "Always an error. Changes by CONFIG SET last until the server stops; write them into the configuration file to keep them.",
		Flags:    []string{"admin", "noscript", "loading", "stale"},
		Examples: []Example{{"CONFIG REWRITE", "(error) ERR Fila does not write its configuration: put what is to last into its file, see CONFIG GET"}},
		Local: func(*Session, *input, *resp.Writer) error {
			return command.Refuse("ERR", "Fila does not write its configuration: put what is to last into its file, see CONFIG GET")
		},
	}
}

// Reload applies the settings of a reloaded configuration. It returns the names of those that
// it has changed, and in fixed the names of changed settings that need a restart.
func (h *Handler) Reload(settings map[string]string, changed []string) (set, fixed []string) {
	var tunable []string
	for _, t := range h.tunables() {
		tunable = append(tunable, t.own)
		value, known := settings[t.own]
		if !known || value == t.get() {
			continue
		}
		change, err := t.check(value)
		if err != nil { // refused while the server runs: it needs a restart
			fixed = append(fixed, t.own)
			continue
		}
		change()
		set = append(set, t.own)
	}
	for _, name := range changed {
		if !slices.Contains(tunable, name) {
			fixed = append(fixed, name)
		}
	}
	return set, fixed
}
