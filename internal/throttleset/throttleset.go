// Package throttleset is the settings of a throttle: what may be set, and in what two of them differ.
package throttleset

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/faisca/fila/storage"
)

// Options are the settings of a throttle. At least one of Rate and Concurrency must be
// set; nil means not limited by it.
type Options struct {
	Rate        *float64 // tokens per second, from 1e-9 to 1e9
	Burst       *uint64  // capacity of the bucket in tokens, from 1 to 1e9; needs Rate; nil: Rate, rounded up, at least 1
	Concurrency *uint64  // live leases at a time, from 1 to 1e9
	ByCost      bool     // a delivery takes the cost of its message in tokens, else one; needs Rate
	Adaptive    bool     // the live leases that are allowed shrink while work fails; needs Concurrency
	Min         *uint64  // the fewest that Adaptive leaves, from 1 to Concurrency; nil: 1
}

const (
	rateMax        = 1e9
	rateMin        = 1e-9 // one token in 31 years
	burstMax       = 1_000_000_000
	concurrencyMax = 1_000_000_000
)

// Setting checks the options and returns them as they are stored, with defaults filled in.
func (o *Options) Setting() (storage.Throttle, error) {
	var set storage.Throttle
	if o.Rate == nil && o.Concurrency == nil {
		return set, errors.New("a throttle needs RATE or CONCURRENCY; FILA.THROTTLE DEL takes it away")
	}
	if r := o.Rate; r != nil {
		if !(*r >= rateMin && *r <= rateMax) { // NaN is neither
			return set, fmt.Errorf("RATE must be from %s to %s a second", plain(rateMin), plain(rateMax))
		}
		set.Rate = *r
		set.Burst = uint64(max(1, math.Ceil(*r)))
	}
	if b := o.Burst; b != nil {
		if o.Rate == nil {
			return set, errors.New("BURST needs RATE")
		}
		if *b < 1 || *b > burstMax {
			return set, fmt.Errorf("BURST must be from 1 to %d", uint64(burstMax))
		}
		set.Burst = *b
	}
	if set.ByCost = o.ByCost; set.ByCost && o.Rate == nil {
		return set, errors.New("BY COST needs RATE")
	}
	if n := o.Concurrency; n != nil {
		if *n < 1 || *n > concurrencyMax {
			return set, fmt.Errorf("CONCURRENCY must be from 1 to %d", uint64(concurrencyMax))
		}
		set.Concurrency = *n
	}
	if err := o.adapt(&set); err != nil {
		return storage.Throttle{}, err
	}
	return set, nil
}

// adapt checks the options of an adaptive throttle.
func (o *Options) adapt(set *storage.Throttle) error {
	switch {
	case o.Adaptive && o.Concurrency == nil:
		return errors.New("ADAPTIVE needs CONCURRENCY")
	case o.Adaptive && o.Min == nil:
		set.AdaptiveMin = 1
	case o.Adaptive:
		if set.AdaptiveMin = *o.Min; set.AdaptiveMin < 1 || set.AdaptiveMin > set.Concurrency {
			return fmt.Errorf("MIN must be from 1 to CONCURRENCY, %d", set.Concurrency)
		}
	case o.Min != nil:
		return errors.New("MIN needs ADAPTIVE")
	}
	return nil
}

// plain formats a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Field is a setting that changes, by the name that files of queues give it; "none" stands for no limit.
type Field struct{ Name, From, To string }

// Differing lists the settings in which two throttles differ.
func Differing(a, b *storage.Throttle) []Field {
	number := func(x float64) string {
		if x == 0 {
			return "none"
		}
		return plain(x)
	}
	flag := map[bool]string{false: "0", true: "1"}
	all := []Field{
		{"rate", number(a.Rate), number(b.Rate)},
		{"burst", number(float64(a.Burst)), number(float64(b.Burst))},
		{"concurrency", number(float64(a.Concurrency)), number(float64(b.Concurrency))},
		{"by_cost", flag[a.ByCost], flag[b.ByCost]},
		{"adaptive", flag[a.AdaptiveMin > 0], flag[b.AdaptiveMin > 0]},
		{"min", number(float64(a.AdaptiveMin)), number(float64(b.AdaptiveMin))},
	}
	return slices.DeleteFunc(all, func(f Field) bool { return f.From == f.To })
}
