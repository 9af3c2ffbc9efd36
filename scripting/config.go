package scripting

import (
	"errors"
	"time"

	"github.com/faisca/fila/engine"
)

// Config bounds what scripts may use. Start from DefaultConfig.
type Config struct {
	Timeout time.Duration // of one call, by the clock on the wall
	Memory  int           // bytes one call may allocate, garbage included
	Source  int           // bytes of a script

	// Memo is how many decisions of on_enqueue scripts are remembered at least, of all
	// scripts together: up to 3 KiB each, 300 bytes as a rule. 0: none.
	Memo int

	Failures uint32        // errors in a row that open a hook's breaker
	Cooldown time.Duration // from then until a call may try again

	Limits engine.Limits // of what a script may return

	// Turned, if set, is told when a hook's breaker has opened or closed, on the
	// goroutine whose call has done it. It must not wait.
	Turned func(h engine.Hook, s engine.BreakerState)
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config {
	return Config{
		Timeout: 10 * time.Millisecond, Memory: 1 << 20, Source: 64 << 10, Memo: 1 << 14,
		Failures: 3, Cooldown: 10 * time.Second, Limits: engine.DefaultConfig().Limits,
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
	case min(l.Key, l.Throttle) <= 0 || l.Throttles < 0 || l.Weight == 0 || l.Cost == 0: // no throttles at all is a limit that can be held
		return errors.New("scripting: a limit of 0 would refuse every result")
	}
	return nil
}

// instructions is the most that a call may execute. The clock normally ends a
// script first; this ends it on a machine whose clock stands still as well.
func (c *Config) instructions() int64 {
	return int64(c.Timeout/time.Millisecond) * instructionsPerMilli
}

const (
	// instructionsPerMilli is above what a fast machine gets done.
	instructionsPerMilli = 500_000

	// sourceMax keeps the numbers inside gopher-lua's instructions (18 bits) from
	// overflowing: neither constants nor jumps can get that many.
	sourceMax = 1 << 20

	// What a machine is made of. Calls from Lua into the library and back nest in
	// Go, so the depth also bounds Go's stack.
	callDepthMax  = 120
	registryStart = 1024 // slots of 16 bytes
	registryStep  = 512
	registryMax   = 1792

	// arrayMax is the largest index that a table keeps in its array part. A write
	// beyond the array's end fills the gap, so this bounds a single write; longer
	// lists than that do not fit the default memory limit anyway.
	arrayMax = 1 << 14
)
