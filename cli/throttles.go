package cli

import (
	"fmt"
	"maps"
	"slices"
)

// Throttle is a throttle or a pattern as described by a file: the fields present, by name.
type Throttle struct {
	Fields map[string]any
	at     string // file and line
}

// throttlesIn validates the throttles of a file. raw is the value of its key throttles.
func throttlesIn(path string, text []byte, raw any) ([]Throttle, error) {
	return tablesIn(path, text, raw, "throttles", func(fields map[string]any, at func(field string) string) (Throttle, error) {
		t := Throttle{Fields: fields, at: at("")}
		err := t.check(at)
		return t, err
	})
}

// check validates the throttle; the broker knows the bounds of its limits. at returns the place of a field.
func (t *Throttle) check(at func(field string) string) error {
	known := []string{"name", "rate", "burst", "concurrency", "by_cost", "adaptive", "min"}
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		raw := t.Fields[name]
		var err error
		switch name {
		case "name":
			err = queueField{"name", isText}.check(raw)
		case "rate":
			if rate, ok := raw.(float64); ok && rate > 0 {
				break
			}
			if rate, ok := raw.(int64); !ok || rate <= 0 {
				err = fmt.Errorf("must be a number above 0, not %v", shownRaw(raw))
			}
		case "burst", "concurrency", "min":
			err = queueField{name, 1}.check(raw)
		case "by_cost", "adaptive":
			err = queueField{name, isSwitch}.check(raw)
		default:
			return fmt.Errorf("%s: a throttle has no %s%s", at(name), name, hintOf(name, known))
		}
		if err != nil {
			return fmt.Errorf("%s: %s %w", at(name), name, err)
		}
	}
	switch f := t.Fields; {
	case f["name"] == nil:
		return fmt.Errorf("%s: a throttle needs a name", at(""))
	case f["rate"] == nil && f["concurrency"] == nil:
		return fmt.Errorf("%s: throttle %q needs a rate or a concurrency", at(""), f["name"])
	}
	return nil
}

// distinctThrottles returns an error if two throttles have the same name.
func distinctThrottles(throttles []Throttle) error {
	seen := map[any]string{}
	for _, t := range throttles {
		name := t.Fields["name"]
		if first, twice := seen[name]; twice {
			return fmt.Errorf("%s: throttle %q is defined already at %s", t.at, name, first)
		}
		seen[name] = t.at
	}
	return nil
}
