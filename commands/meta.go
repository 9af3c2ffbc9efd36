package commands

import (
	"math"
	"slices"
	"strconv"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/queueset"
)

// What producers say about a message, engine.Meta, has options in FILA.ENQUEUE, FILA.PUBLISH and
// FILA.CRON SET, of which FILA.SCRIPT TEST has those that hooks see, and fields in FILA.GET,
// FILA.BROWSE, FILA.EXPLAIN and FILA.CRON GET. An attribute has a line in each of these functions.

// messageArgs are the options of a message, from its key on: due is when it is ready, and more are
// options before the last ones.
func messageArgs(due Arg, more ...Arg) []Arg {
	return slices.Concat(contentArgs(due), more, []Arg{
		{Name: "id", Type: String, Token: "UNIQUE", Optional: true},
		{Name: "until", Type: OneOf, Token: "UNTIL", Optional: true, Args: []Arg{{Name: "lease", Type: PureToken, Token: "LEASE"}}},
		{Name: "replace", Type: PureToken, Token: "REPLACE", Optional: true},
		{Name: "ms", Type: Integer, Token: "MAXDELAY", Optional: true, Min: 1, Max: millisMax},
	})
}

// contentArgs are those of messageArgs that are not about other messages.
func contentArgs(due Arg) []Arg {
	return slices.Concat([]Arg{
		{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
		{Name: "n", Type: Integer, Token: "WEIGHT", Optional: true, Min: math.MinInt64},
		{Name: "n", Type: Integer, Token: "COST", Optional: true, Min: math.MinInt64},
	}, hookedArgs(), []Arg{
		{Name: "n", Type: Integer, Token: "PRIORITY", Optional: true, Max: 9},
		due,
		{Name: "ms", Type: Integer, Token: "TTL", Optional: true, Min: 1, Max: millisMax},
	})
}

// hookedArgs are those of what hooks see as it is given.
func hookedArgs() []Arg {
	return []Arg{
		{Name: "key", Type: String, Token: "THROTTLE", Optional: true, Multiple: true},
		{Name: "name", Type: String, Token: "BUDGET", Optional: true, Multiple: true},
		{Name: "n", Type: Integer, Token: "CHARGE", Optional: true, Max: credit.ChargeMax},
		{Name: "n", Type: Integer, Token: "MAXATTEMPTS", Optional: true, Max: math.MaxUint32},
		{Name: "ms", Type: Integer, Token: "BACKOFF", Optional: true, Max: millisMax},
		{Name: "ms", Type: Integer, Token: "MAXBACKOFF", Optional: true, Max: millisMax},
		{Name: "header", Type: Block, Token: "HEADER", Optional: true, Multiple: true, Args: []Arg{
			{Name: "name", Type: String}, {Name: "value", Type: String},
		}},
	}
}

// parseFirst parses the options before hookedArgs.
func parseFirst(s *Session, in *input, req *engine.Enqueue) (err error) {
	if req.Weight, err = atLeastOne(in, "WEIGHT", "weight", s.handler.cfg.Limits.Weight); err == nil {
		req.Cost, err = atLeastOne(in, "COST", "cost", s.handler.cfg.Limits.Cost)
	}
	return err
}

// parseHooked parses hookedArgs.
func parseHooked(in *input, req *engine.Enqueue) {
	req.Throttles, req.Headers, req.Budgets = in.Texts("throttle"), headers(in), in.Texts("budget")
	if in.Has("charge") {
		req.Charge = new(in.Integer("charge", 0))
	}
	given := func(slot string) queueset.Optional {
		if !in.Has(slot) {
			return 0
		}
		return queueset.Some(uint64(in.Integer(slot, 0)))
	}
	req.Retries = req.Retries.With(queueset.Retries{
		MaxAttempts: given("maxattempts"), Backoff: given("backoff"), MaxBackoff: given("maxbackoff"),
	})
}

// parseLast parses the last options.
func parseLast(in *input, req *engine.Enqueue) error {
	if req.Unique = string(in.Bytes("unique")); in.Has("unique") && req.Unique == "" {
		return command.Refuse("INVALID", "UNIQUE has at least one byte")
	}
	req.UntilLease, req.Replace, req.MaxDelay = in.Has("until.lease"), in.Has("replace"), in.Millis("maxdelay", 0)
	return nil
}

// shown is how a field shows an attribute.
type shown struct {
	name string
	show func(f *fields, name string, m *engine.Meta)
}

// The first attributes have places of their own among the fields of a reply. Those behind them, which
// later names all together, are its last fields: a reply grows at its end only.
const placed, later = 11, "later"

func attributes() [11]shown {
	return [...]shown{
		{"weight", func(f *fields, name string, m *engine.Meta) { f.number(name, int64(m.Weight)) }},
		{"throttle", func(f *fields, name string, m *engine.Meta) { f.texts(name, m.Throttles) }},
		{"cost", func(f *fields, name string, m *engine.Meta) { f.number(name, int64(m.Cost)) }},
		{"expires_at", func(f *fields, name string, m *engine.Meta) { f.at(name, m.Expires()) }},
		{"budgets", func(f *fields, name string, m *engine.Meta) { f.texts(name, m.Budgets) }},
		{"charge", func(f *fields, name string, m *engine.Meta) { f.number(name, m.Charge) }},
		{"unique", func(f *fields, name string, m *engine.Meta) { f.optional(name, m.Unique) }},
		{"max_attempts", func(f *fields, name string, m *engine.Meta) { f.given(name, retries(m).MaxAttempts) }},
		{"backoff_ms", func(f *fields, name string, m *engine.Meta) { f.given(name, retries(m).Backoff) }},
		{"max_backoff_ms", func(f *fields, name string, m *engine.Meta) { f.given(name, retries(m).MaxBackoff) }},
		{"until_lease", func(f *fields, name string, m *engine.Meta) { f.flag(name, m.UntilLease) }},
	}
}

// retries returns those of a message, of which nothing need be given.
func retries(m *engine.Meta) queueset.Retries {
	if m.Retries == nil {
		return queueset.Retries{}
	}
	return *m.Retries
}

// attributes adds attributes by the names of their fields, in the order of the table; of no message, which are not known, nil.
func (f *fields) attributes(m *engine.Meta, names ...string) {
	for i, a := range attributes() {
		switch {
		case !slices.Contains(names, a.name) && (i < placed || !slices.Contains(names, later)):
		case m == nil:
			f.optional(a.name, "")
		default:
			a.show(f, a.name, m)
		}
	}
}

// atLeastOne returns an integer from 1 to a limit, or 0 if the option is absent. The Spec of the
// option accepts any integer, so that all invalid ones are refused with the same text.
func atLeastOne(in *input, token, slot string, most int) (uint32, error) {
	if !in.Has(slot) {
		return 0, nil
	}
	n := in.Integer(slot, 0)
	if n < 1 || n > int64(most) {
		return 0, command.Refuse("INVALID", "not allowed: "+token+" "+strconv.FormatInt(n, 10)+", it must be from 1 to "+strconv.Itoa(most))
	}
	return uint32(n), nil
}
