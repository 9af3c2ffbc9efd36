package limits

import (
	"fmt"
	"slices"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// CheckMeta validates the throttle keys and the budgets that a producer gives a message, and what it charges each
// of them; charge is nil if that follows from the cost. It also validates the retries that the message has of its own.
func (l *Limits) CheckMeta(meta *storage.Meta, charge *int64) error {
	if n := len(meta.Throttles); n > l.Throttles {
		if n = countDistinct(meta.Throttles); n > l.Throttles {
			return fmt.Errorf("%w: %s, the limit is %d", refusals.ErrTooBig, errtext.Amount(n, "different throttle key"), l.Throttles)
		}
	}
	for _, t := range meta.Throttles {
		if t == "" {
			return fmt.Errorf("%w: a throttle key has at least one byte", refusals.ErrInvalid)
		}
		if len(t) > l.Throttle {
			return fmt.Errorf("%w: THROTTLE of %d bytes, the limit is %d", refusals.ErrTooBig, len(t), l.Throttle)
		}
	}
	if n := len(meta.Budgets); n > credit.BudgetsMax {
		if n = countDistinct(meta.Budgets); n > credit.BudgetsMax {
			return fmt.Errorf("%w: %s, the limit is %d", refusals.ErrTooBig, errtext.Amount(n, "different budget"), credit.BudgetsMax)
		}
	}
	for _, name := range meta.Budgets {
		if name == "" {
			return fmt.Errorf("%w: the name of a budget has at least one byte", refusals.ErrInvalid)
		}
		if len(name) > l.Key {
			return fmt.Errorf("%w: BUDGET of %d bytes, the limit is %d", refusals.ErrTooBig, len(name), l.Key)
		}
	}
	if charge != nil && (*charge < 0 || *charge > credit.ChargeMax) {
		return fmt.Errorf("%w: CHARGE %d, it must be from 0 to %d", refusals.ErrInvalid, *charge, int64(credit.ChargeMax))
	}
	if err := meta.CheckRetries(); err != nil {
		return fmt.Errorf("%w: %w", refusals.ErrInvalid, err)
	}
	return nil
}

// CheckHeaders validates the headers of a message.
func (l *Limits) CheckHeaders(headers []storage.Header) error {
	if n := len(headers); n > l.Headers {
		return fmt.Errorf("%w: %s, the limit is %d", refusals.ErrTooBig, errtext.Amount(n, "header"), l.Headers)
	}
	for i := range headers {
		h := &headers[i]
		switch {
		case len(h.Name) == 0:
			return fmt.Errorf("%w: a header name has at least one byte", refusals.ErrInvalid)
		case len(h.Name) > l.HeaderName:
			return fmt.Errorf("%w: HEADER name of %d bytes, the limit is %d", refusals.ErrTooBig, len(h.Name), l.HeaderName)
		case len(h.Value) > l.HeaderValue:
			return fmt.Errorf("%w: HEADER value of %d bytes, the limit is %d", refusals.ErrTooBig, len(h.Value), l.HeaderValue)
		}
	}
	return nil
}

// Once drops repetitions of throttle keys and budgets: a message takes one token of each throttle. The lists may be
// shared and are not changed; without repetitions they remain.
func Once(meta *storage.Meta) {
	meta.Throttles, meta.Budgets = distinct(meta.Throttles), distinct(meta.Budgets)
}

// countDistinct returns the number of different keys in a list.
func countDistinct(keys []string) int {
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		seen[key] = struct{}{}
	}
	return len(seen)
}

// distinct returns the keys without repetitions, in their order.
func distinct(keys []string) []string {
	for i := 1; i < len(keys); i++ {
		if !slices.Contains(keys[:i], keys[i]) {
			continue
		}
		once := slices.Clone(keys[:i])
		for _, key := range keys[i+1:] {
			if !slices.Contains(once, key) {
				once = append(once, key)
			}
		}
		return once
	}
	return keys
}
