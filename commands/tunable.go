package commands

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/resp"
)

// tunable is a setting that CONFIG SET can change while the server runs. The
// change lasts until it ends: the file stays as it is.
type tunable struct {
	redis string // its name in Redis
	own   string // its full name in Fila
	get   func() string
	words map[string]string // how Redis says its values, where it does so otherwise
	// check returns what sets the value, or why it cannot be.
	check func(value string) (set func(), err error)
}

// tunables are all of them, by their name in Redis.
func (h *Handler) tunables() []tunable {
	all := []tunable{
		integerSetting("latency-monitor-threshold", "latency.threshold_ms", 0, math.MaxInt32, h.latency.after.Load, h.latency.after.Store),
		integerSetting("slowlog-log-slower-than", "slowlog.slower_than_us", -1, int64(time.Hour/time.Microsecond), h.slow.after.Load, h.slow.after.Store),
		integerSetting("slowlog-max-len", "slowlog.max_entries", 0, SlowEntriesMax, h.slow.max.Load, h.slow.max.Store),
	}
	if h.cfg.LogLevel != nil {
		all = append(all, logLevel(h.cfg.LogLevel))
	}
	return all
}

// SlowEntriesMax bounds the slow log, of which an entry may take 4 KiB.
const SlowEntriesMax = 10_000

func integerSetting(redis, own string, least, most int64, get func() int64, set func(int64)) tunable {
	return tunable{
		redis: redis, own: own,
		get: func() string { return strconv.FormatInt(get(), 10) },
		check: func(value string) (func(), error) {
			n, ok := parseInt([]byte(value))
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

// LogLevel is the level of the log, in Fila's words. It may be changed at any time
// from any goroutine.
type LogLevel interface {
	Get() string
	Set(level string)
}

// logLevel takes Redis' levels and Fila's. Redis has four names where Fila has
// none between what is told always and what is told to who looks for a fault.
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
	return &refusal{"ERR", "CONFIG SET failed (possibly related to argument '" + name + "') - " + why}
}

func configSet() Spec {
	return Spec{
		Name: "SET", Group: "server", Since: "2.0.0", Complexity: "O(N) where N is the number of settings",
		Summary: "Changes settings of the running server, all of them or none, until it ends.",
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
	words := in.list("data")
	if len(words)%2 != 0 {
		return wrongArity(in.cmd)
	}
	set := make(map[string]func(), len(words)/2)
	for i := 0; i < len(words); i += 2 {
		name := strings.ToLower(string(words[i]))
		t, err := s.handler.tunable(name)
		if err != nil {
			return err
		}
		if set[t.redis] != nil {
			return cannotSet(clip(words[i]), "duplicate parameter")
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

// tunable finds the setting of that name, in lower case, or says why it cannot
// be set.
func (h *Handler) tunable(name string) (tunable, error) {
	for _, t := range h.tunables() {
		if t.redis == name || t.own == name {
			return t, nil
		}
	}
	if _, known := h.settings()[name]; known {
		return tunable{}, cannotSet(name, "can't set immutable config: set it in the file, the environment or by a flag and start Fila again")
	}
	return tunable{}, &refusal{"ERR", "Unknown option or number of arguments for CONFIG SET - '" + clip([]byte(name)) + "'"}
}

func configResetStat() Spec {
	return Spec{
		Name: "RESETSTAT", Group: "server", Since: "2.0.0", Complexity: "O(N) where N is the number of commands",
		Summary:  "Sets the figures of commands, errors and connections in INFO back to 0.",
		Differs:  "The counts of queues and of the engine go on: FILA.STATS and the section Fila show them.",
		Flags:    []string{"admin", "noscript", "loading", "stale"},
		Examples: []Example{{"CONFIG RESETSTAT", "OK"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			h := s.handler
			h.metrics.reset()
			zero := h.counters()
			h.zero.Store(&zero)
			w.OK()
			return nil
		},
	}
}

func configRewrite() Spec {
	return Spec{
		Name: "REWRITE", Group: "server", Since: "2.8.0", Complexity: "O(1)",
		Summary:  "Refused: Fila does not write its configuration.",
		Differs:  "Always an error. What CONFIG SET has changed lasts until the server ends; put it into the file to keep it.",
		Flags:    []string{"admin", "noscript", "loading", "stale"},
		Examples: []Example{{"CONFIG REWRITE", "(error) ERR Fila does not write its configuration: put what is to last into its file, see CONFIG GET"}},
		Local: func(*Session, *input, *resp.Writer) error {
			return &refusal{"ERR", "Fila does not write its configuration: put what is to last into its file, see CONFIG GET"}
		},
	}
}
