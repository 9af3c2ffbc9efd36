package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	gotoml "github.com/pelletier/go-toml/v2"

	"github.com/faisca/fila/cli/remote"
	"github.com/faisca/fila/internal/queueset"
)

// Queue is a queue as described by a file: the fields present, by name, with scripts replaced by
// their sources.
type Queue struct {
	Fields map[string]any
	at     string // file and line
}

// Tables are what a file describes beside settings.
type Tables struct {
	Queues    []Queue
	Topics    []Topic
	Throttles []Throttle
}

// tableNames are the names of tables in a file, each in double brackets.
func tableNames() []string { return []string{"queues", "topics", "throttles"} }

// Empty reports whether there are no tables.
func (t *Tables) Empty() bool { return len(t.Queues)+len(t.Topics)+len(t.Throttles) == 0 }

// Definition returns the tables as an argument of FILA.QUEUE APPLY.
func (t *Tables) Definition() ([]byte, error) {
	whole := map[string]any{"queues": fieldsOf(t.Queues, func(q Queue) map[string]any { return q.Fields })}
	if len(t.Topics) > 0 {
		whole["topics"] = fieldsOf(t.Topics, func(t Topic) map[string]any { return t.Fields })
	}
	if len(t.Throttles) > 0 {
		whole["throttles"] = fieldsOf(t.Throttles, func(t Throttle) map[string]any { return t.Fields })
	}
	return json.Marshal(whole)
}

func fieldsOf[T any](tables []T, fields func(T) map[string]any) []map[string]any {
	list := make([]map[string]any, len(tables))
	for i := range tables {
		list[i] = fields(tables[i])
	}
	return list
}

// read adds the tables of one name of a file, whose value is raw.
func (t *Tables) read(path string, text []byte, name string, raw any) error {
	var more Tables
	var err error
	switch name {
	case "queues":
		more.Queues, err = queuesIn(path, text, raw)
	case "topics":
		more.Topics, err = topicsIn(path, text, raw)
	default:
		more.Throttles, err = throttlesIn(path, text, raw)
	}
	t.add(&more)
	return err
}

// add adds other tables.
func (t *Tables) add(more *Tables) {
	t.Queues, t.Topics, t.Throttles = append(t.Queues, more.Queues...), append(t.Topics, more.Topics...), append(t.Throttles, more.Throttles...)
}

// distinct returns an error if something is there twice.
func (t *Tables) distinct() error {
	return cmp.Or(distinctQueues(t.Queues), distinctTopics(t.Topics), distinctThrottles(t.Throttles))
}

// queueField describes the valid values of a field.
type queueField struct {
	name string
	// least is the minimum of a number; isText or isSwitch for other kinds of fields.
	least int64
}

const (
	isText   = -1
	isSwitch = -2 // true or false
)

func queueFields() []queueField {
	fields := []queueField{{"name", isText}}
	for _, row := range queueset.All() {
		f := queueField{row.Name, row.Least()}
		if row.Unit == queueset.Switch {
			f.least = isSwitch
		}
		fields = append(fields, f)
	}
	return append(fields, queueField{"dlq", isText}, queueField{"on_enqueue", isText}, queueField{"on_failure", isText})
}

// loadTables reads a file that contains only tables.
func loadTables(path string) (t Tables, err error) {
	text, err := readText(path)
	if err != nil {
		return t, fmt.Errorf("queues: %w", err)
	}
	tree := map[string]any{}
	if err := gotoml.Unmarshal(text, &tree); err != nil {
		return t, fileError(path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if !slices.Contains(tableNames(), name) {
			return t, fmt.Errorf("%s: only [[queues]], [[topics]] and [[throttles]] are allowed here, not %s", path, name)
		}
	}
	for _, name := range tableNames() {
		if err := t.read(path, text, name, tree[name]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// queuesIn validates the queues of a file. raw is the value of its key queues.
func queuesIn(path string, text []byte, raw any) ([]Queue, error) {
	return tablesIn(path, text, raw, "queues", func(fields map[string]any, at func(field string) string) (Queue, error) {
		q := Queue{Fields: fields, at: at("")}
		err := q.check(at, filepath.Dir(path))
		return q, err
	})
}

// tablesIn reads the tables of one name of a file, whose value is raw, each by one. at returns the
// place of a field of the table, and with "" that of the table.
func tablesIn[T any](path string, text []byte, raw any, name string, one func(fields map[string]any, at func(field string) string) (T, error)) ([]T, error) {
	list, ok := raw.([]any)
	if raw != nil && !ok {
		return nil, fmt.Errorf("%s: %s must be written as [[%s]], once for each", path, name, name)
	}
	lines := newTableLines(text, name)
	all := make([]T, 0, len(list))
	for i, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: %s must be written as [[%s]], once for each", path, name, name)
		}
		t, err := one(fields, func(field string) string { return path + lines.of(i, field) })
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// check validates the queue and reads its scripts, whose paths are relative to dir. at returns the
// place of a field.
func (q *Queue) check(at func(field string) string, dir string) error {
	known := queueFields()
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	for _, name := range slices.Sorted(maps.Keys(q.Fields)) {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("%s: a queue has no %s%s", at(name), name, hintOf(name, names))
		}
		if err := known[i].check(q.Fields[name]); err != nil {
			return fmt.Errorf("%s: %s %w", at(name), name, err)
		}
	}
	name, _ := q.Fields["name"].(string)
	if name == "" {
		return fmt.Errorf("%s: a queue needs a name", at(""))
	}
	if q.Fields["dlq"] == name {
		return fmt.Errorf("%s: dlq of %q is the queue itself", at("dlq"), name)
	}
	for _, hook := range []string{"on_enqueue", "on_failure"} {
		path, ok := q.Fields[hook].(string)
		if !ok {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		source, err := os.ReadFile(path) //nolint:gosec // it is what the file names
		if err != nil {
			return fmt.Errorf("%s: %s: %w", at(hook), hook, err)
		}
		if len(source) == 0 {
			return fmt.Errorf("%s: %s: %s is empty", at(hook), hook, path)
		}
		q.Fields[hook] = string(source)
	}
	return nil
}

// hintOf says which field may be meant by a name that is none.
func hintOf(name string, known []string) string {
	if near := remote.Nearest(name, known); near >= 0 {
		return "; did you mean " + known[near] + "?"
	}
	return "; its fields are " + strings.Join(known, " ")
}

func (f queueField) check(raw any) error {
	if f.least >= 0 {
		if n, ok := raw.(int64); !ok || n < f.least {
			return fmt.Errorf("must be a whole number of at least %d, not %v", f.least, shownRaw(raw))
		}
		return nil
	}
	if f.least == isSwitch {
		if _, ok := raw.(bool); !ok {
			return fmt.Errorf("must be true or false, not %v", shownRaw(raw))
		}
		return nil
	}
	if f.name == "dlq" && raw == false {
		return nil
	}
	if s, ok := raw.(string); !ok || s == "" {
		if f.name == "dlq" {
			return fmt.Errorf("must be the name of a queue, or false for none, not %v", shownRaw(raw))
		}
		return fmt.Errorf("must be text in quotes, not %v", shownRaw(raw))
	}
	return nil
}

func shownRaw(raw any) string {
	if s, ok := raw.(string); ok {
		return fmt.Sprintf("%.64q", s)
	}
	const most = 64
	text := fmt.Sprint(raw)
	return text[:min(len(text), most)]
}

// distinctQueues returns an error if two queues have the same name.
func distinctQueues(queues []Queue) error {
	seen := map[any]string{}
	for _, q := range queues {
		name := q.Fields["name"]
		if first, twice := seen[name]; twice {
			return fmt.Errorf("%s: queue %q is defined already at %s", q.at, name, first)
		}
		seen[name] = q.at
	}
	return nil
}

// tableLines finds the lines of tables of one name that have their own headers.
type tableLines struct {
	lines   []string
	headers []int // by index of the table
}

func newTableLines(text []byte, name string) tableLines {
	header := regexp.MustCompile(`^\s*\[\[\s*"?` + name + `"?\s*\]\]`)
	l := tableLines{lines: strings.Split(string(text), "\n")}
	for i, line := range l.lines {
		if header.MatchString(line) {
			l.headers = append(l.headers, i)
		}
	}
	return l
}

// of returns a colon and the line of a field of the nth table, or of its header; "" if it is
// unknown.
func (l tableLines) of(n int, field string) string {
	if n >= len(l.headers) {
		return ""
	}
	at := l.headers[n]
	end := len(l.lines)
	if n+1 < len(l.headers) {
		end = l.headers[n+1]
	}
	for i := at + 1; field != "" && i < end; i++ {
		name, _, assigned := strings.Cut(l.lines[i], "=")
		if assigned && strings.Trim(name, " \t\"'") == field {
			at = i
			break
		}
	}
	return fmt.Sprintf(":%d", at+1)
}
