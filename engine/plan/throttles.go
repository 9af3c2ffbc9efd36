package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/throttleset"
	"github.com/faisca/fila/storage"
)

// ThrottleSpec is a throttle or a pattern as a file describes it.
type ThrottleSpec struct {
	Key     string
	Options throttleset.Options
}

// ThrottleStep is a throttle that changes.
type ThrottleStep struct {
	Change
	To storage.Throttle // not used if its setting is deleted
}

// Setting checks the options of a throttle and returns them as they are stored, with defaults filled in. Errors wrap
// ErrInvalid.
func Setting(o *throttleset.Options) (storage.Throttle, error) {
	set, err := o.Setting()
	if err != nil {
		err = fmt.Errorf("%w: %w", refusals.ErrInvalid, err)
	}
	return set, err
}

// OfThrottles plans the changes that make throttles match a set, in the order of their keys. there are the settings of now,
// at least those of the keys of the set, and all of them if it prunes. Then those that the set does not
// have are deleted, unless it has none at all: files of before throttles could be in them leave them alone.
func OfThrottles(set *Set, there map[string]storage.Throttle, l *limits.Limits) ([]ThrottleStep, error) {
	var steps []ThrottleStep
	inSet := map[string]bool{}
	for i := range set.ThrottleSpecs {
		spec := &set.ThrottleSpecs[i]
		to, err := Setting(&spec.Options)
		if err = cmp.Or(l.CheckThrottleKey(spec.Key), err); err == nil && inSet[spec.Key] {
			err = fmt.Errorf("%w: it is there twice", refusals.ErrInvalid)
		}
		if err != nil {
			return nil, fmt.Errorf("throttle %.255q: %w", spec.Key, err)
		}
		inSet[spec.Key] = true
		before, is := there[spec.Key]
		change := Change{Action: Throttle, Throttle: spec.Key}
		if is {
			change.Action = Rethrottle
		}
		for _, f := range throttleset.Differing(&before, &to) {
			change.Fields = append(change.Fields, Field(f))
		}
		if len(change.Fields) > 0 {
			steps = append(steps, ThrottleStep{change, to})
		}
	}
	if set.Prune && len(inSet) > 0 {
		for key := range there {
			if !inSet[key] {
				steps = append(steps, ThrottleStep{Change: Change{Action: Unthrottle, Throttle: key}})
			}
		}
	}
	slices.SortFunc(steps, func(a, b ThrottleStep) int { return strings.Compare(a.Throttle, b.Throttle) })
	return steps, nil
}
