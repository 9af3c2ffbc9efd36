package scripting

import (
	"cmp"
	"errors"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// Config bounds the resources of scripts. Start from DefaultConfig. Timeout, Memory and Failures
// hold where the bounds of a queue have none of their own, see hook.Bounds.
type Config struct {
	Timeout time.Duration // wall-clock time of one call, 1 ms to 1 minute
	Memory  int           // bytes that one call may allocate, garbage included; 256 KiB to 1 GiB
	Source  int           // bytes of a script's source, at most 1 MiB

	// Memo is the number of cached on_enqueue decisions of all scripts together, rounded
	// up to a power of two. An entry takes 300 bytes typically and 3 KiB at most. 0
	// disables the cache.
	Memo int

	Failures uint32        // consecutive errors that open a hook's breaker
	Cooldown time.Duration // time from then until a trial call

	Limits hook.Limits // bounds of the values that a script may return

	// BreakerChanged, if set, is called when a hook's breaker opens or closes, on the
	// goroutine of the call that caused it. It must not block.
	BreakerChanged func(h hook.Hook, s hook.BreakerState)
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config {
	return Config{
		Timeout: 10 * time.Millisecond, Memory: 1 << 20, Source: 64 << 10, Memo: 1 << 14,
		Failures: 3, Cooldown: 10 * time.Second, Limits: hook.DefaultLimits(),
	}
}

func (c *Config) check() error {
	l := c.Limits
	switch {
	case c.Timeout < time.Millisecond || c.Timeout > time.Minute:
		return errors.New("scripting: the timeout must be between 1 ms and 1 minute")
	case c.Memory < 256<<10 || c.Memory > 1<<30:
		return errors.New("scripting: the memory limit must be between 256 KiB and 1 GiB")
	case c.Source <= 0 || c.Source > sourceMax:
		return errors.New("scripting: the limit of a script's size must be between 1 byte and 1 MiB")
	case c.Memo < 0 || c.Memo > 1<<24:
		return errors.New("scripting: the number of decisions to remember must be between 0 and 16,777,216")
	case c.Failures == 0:
		return errors.New("scripting: a breaker that opens after no error would never let a script run")
	case c.Cooldown <= 0:
		return errors.New("scripting: the cooldown must be positive")
	case min(l.Key, l.Throttle) <= 0 || l.Throttles < 0 || l.Weight == 0 || l.Cost == 0: // 0 throttles is a valid limit
		return errors.New("scripting: a limit of 0 would refuse every result")
	}
	return nil
}

// bounds returns the bounds of a queue with those of the configuration where it has none.
func (c *Config) bounds(of hook.Bounds) hook.Bounds {
	return hook.Bounds{
		Timeout: cmp.Or(of.Timeout, c.Timeout), Memory: cmp.Or(of.Memory, c.Memory), Errors: cmp.Or(of.Errors, c.Failures),
	}
}

// instructionsIn is the instruction limit of a call with a time limit. Normally the time limit
// ends a script first; this one also holds if the clock does not advance.
func instructionsIn(timeout time.Duration) int64 {
	return int64(timeout/time.Millisecond) * instructionsPerMilli
}

const (
	// instructionsPerMilli is more than a fast machine executes in a millisecond.
	instructionsPerMilli = 500_000

	// sourceMax keeps constant and jump indices within the 18 bits of gopher-lua's
	// instructions.
	sourceMax = 1 << 20

	// Sizes of a machine. Calls between Lua and the library nest on the Go stack, so the
	// call depth bounds that as well.
	callDepthMax  = 120
	registryStart = 1024 // slots of 16 bytes
	registryStep  = 512
	registryMax   = 1792

	// arrayMax is the largest index in a table's array part. A write beyond the end fills
	// the gap, so this bounds the cost of a single write. Longer lists exceed the default
	// memory limit in any case.
	arrayMax = 1 << 14
)
