package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/faisca/fila/internal/glob"
)

// Topic is the binding of a queue to a topic as described by a file: the fields present, by name.
type Topic struct {
	Fields map[string]any
	at     string // file and line
}

// topicsIn validates the bindings of a file. raw is the value of its key topics.
func topicsIn(path string, text []byte, raw any) ([]Topic, error) {
	return tablesIn(path, text, raw, "topics", func(fields map[string]any, at func(field string) string) (Topic, error) {
		t := Topic{Fields: fields, at: at("")}
		err := t.check(at)
		return t, err
	})
}

// check validates the binding. at returns the place of a field.
func (t *Topic) check(at func(field string) string) error {
	known := []string{"name", "queue", "headers"}
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: a topic has no %s%s", at(name), name, hintOf(name, known))
		}
	}
	for _, name := range known[:2] {
		raw, given := t.Fields[name]
		if !given {
			return fmt.Errorf("%s: a topic needs a %s", at(""), name)
		}
		if s, ok := raw.(string); !ok || s == "" {
			return fmt.Errorf("%s: %s must be text in quotes, not %v", at(name), name, shownRaw(raw))
		}
	}
	raw, given := t.Fields["headers"]
	headers, ok := raw.(map[string]any)
	if given && !ok {
		return fmt.Errorf("%s: headers must be names and patterns, such as { kind = \"goods\" }, not %v", at("headers"), shownRaw(raw))
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := checkPatterns(name, headers[name]); err != nil {
			return fmt.Errorf("%s: %w", at("headers"), err)
		}
	}
	return nil
}

// checkPatterns validates the patterns of a header: one, or a list of them.
func checkPatterns(header string, raw any) error {
	if header == "" {
		return errors.New("the name of a header has at least one byte")
	}
	patterns, ok := raw.([]any)
	if !ok {
		patterns = []any{raw}
	}
	if len(patterns) == 0 {
		return fmt.Errorf("header %.64q needs a pattern, \"*\" for any value", header)
	}
	for _, p := range patterns {
		pattern, ok := p.(string)
		if !ok {
			return fmt.Errorf("the pattern of header %.64q must be text in quotes, or a list of such texts, not %v", header, shownRaw(raw))
		}
		if err := glob.Check(pattern); err != nil {
			return fmt.Errorf("the pattern %.64q of header %.64q %w", pattern, header, err)
		}
	}
	return nil
}

// distinctTopics returns an error if two bindings are of the same queue to the same topic.
func distinctTopics(topics []Topic) error {
	seen := map[[2]any]string{}
	for _, t := range topics {
		binding := [2]any{t.Fields["name"], t.Fields["queue"]}
		if first, twice := seen[binding]; twice {
			return fmt.Errorf("%s: topic %q has queue %q already at %s; several patterns are one list, as in { kind = [\"a*\", \"*b\"] }", t.at, binding[0], binding[1], first)
		}
		seen[binding] = t.at
	}
	return nil
}
