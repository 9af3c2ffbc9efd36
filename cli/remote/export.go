package remote

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/queueset"
)

// export writes queues and their bindings in TOML, and throttles unless queues are named.
func (c *call) export() error {
	names := c.args["QUEUE"]
	everything := len(names) == 0
	if everything {
		reply, err := c.do("FILA.QUEUE", "LIST")
		if err != nil {
			return err
		}
		names = client.Texts(reply)
	}
	hooks := map[string][]string{}
	if c.given("scripts") {
		var err error
		if hooks, err = c.exportHooks(names, c.text("scripts")); err != nil {
			return err
		}
	}
	if err := c.dial(); err != nil {
		return err
	}
	bindings, err := c.exportTopics(names)
	if err != nil {
		return err
	}
	for i, name := range names {
		reply, err := c.do("FILA.QUEUE", "INFO", name)
		if err != nil {
			return err
		}
		m, _ := reply.(client.Map)
		if i > 0 {
			c.out.Raw("")
		}
		c.out.Raw(strings.Join(append(queueTOML(m), hooks[name]...), "\n"))
	}
	if everything {
		throttles, err := c.exportThrottles()
		if err != nil {
			return err
		}
		bindings = append(bindings, throttles...)
	}
	for i, lines := range bindings {
		if i > 0 || len(names) > 0 {
			c.out.Raw("")
		}
		c.out.Raw(strings.Join(lines, "\n"))
	}
	return nil
}

// exportThrottles returns throttles and patterns as a file describes them, by name. Those that are held and have no limits
// are left out.
func (c *call) exportThrottles() ([][]string, error) {
	all := map[string][]string{}
	var wrong error
	err := c.pages([]string{"FILA.THROTTLE", "LIST"}, func(m client.Map) bool {
		name := m.Text("key")
		if !utf8.ValidString(name) {
			wrong = fmt.Errorf("throttle %q is not UTF-8, which a file in TOML cannot hold; use FILA.THROTTLE SET", name)
		} else if lines := throttleTOML(m); len(lines) > 2 {
			all[name] = lines
		}
		return wrong == nil
	})
	if err := cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	list := make([][]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list, nil
}

// throttleTOML is a throttle or a pattern as a file describes it.
func throttleTOML(m client.Map) []string {
	lines := []string{"[[throttles]]", "name = " + quoted(m.Text("key"))}
	for _, name := range []string{"rate", "burst", "concurrency"} {
		if m.Get(name) != nil {
			lines = append(lines, name+" = "+client.Text(m.Get(name)))
		}
	}
	if m.Int("by_cost") != 0 {
		lines = append(lines, "by_cost = true")
	}
	if m.Get("min") != nil {
		lines = append(lines, "adaptive = true", fmt.Sprintf("min = %d", m.Int("min")))
	}
	return lines
}

// exportTopics returns the bindings of queues as a file describes them, by topic and queue.
func (c *call) exportTopics(queues []string) ([][]string, error) {
	var topics []string
	err := c.pages([]string{"FILA.TOPIC", "LIST"}, func(m client.Map) bool {
		topics = append(topics, m.Text("name"))
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(topics)
	wanted := map[string]bool{}
	for _, name := range queues {
		wanted[name] = true
	}
	var all [][]string
	err = c.each(topics, func(name string) []string { return []string{"FILA.TOPIC", "INFO", name} }, func(topic string, v any) error {
		m, _ := v.(client.Map) // nil if it is gone meanwhile
		for _, b := range client.Maps(m.Get("bindings")) {
			if !wanted[b.Text("queue")] {
				continue
			}
			lines, err := bindingTOML(topic, b)
			if err != nil {
				return err
			}
			all = append(all, lines)
		}
		return nil
	})
	return all, err
}

// bindingTOML is a binding as a file describes it.
func bindingTOML(topic string, b client.Map) ([]string, error) {
	words := client.Texts(b.Get("headers"))
	for _, s := range append([]string{topic, b.Text("queue")}, words...) {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("topic %q, queue %q: %q is not UTF-8, which a file in TOML cannot hold; use FILA.TOPIC BIND", topic, b.Text("queue"), s)
		}
	}
	lines := []string{"[[topics]]", "name = " + quoted(topic), "queue = " + quoted(b.Text("queue"))}
	var names []string
	patterns := map[string][]string{}
	for pair := range slices.Chunk(words, 2) {
		if patterns[pair[0]] == nil {
			names = append(names, pair[0])
		}
		patterns[pair[0]] = append(patterns[pair[0]], quoted(pair[len(pair)-1]))
	}
	for i, name := range names {
		value := strings.Join(patterns[name], ", ")
		if len(patterns[name]) > 1 {
			value = "[" + value + "]"
		}
		names[i] = tomlKey(name) + " = " + value
	}
	if len(names) > 0 {
		lines = append(lines, "headers = { "+strings.Join(names, ", ")+" }")
	}
	return lines, nil
}

// tomlKey is a key of TOML, in quotes if it needs them.
func tomlKey(s string) string {
	for _, r := range s {
		if r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return quoted(s)
		}
	}
	return s
}

// queueTOML is a queue as a file describes it. All settings are written: their defaults are the
// broker's, and another one may have others.
func queueTOML(m client.Map) []string {
	lines := []string{"[[queues]]", "name = " + quoted(m.Text("name"))}
	for _, r := range queueset.All() {
		switch {
		case !m.Has(r.Name):
		case r.Unit == queueset.Switch:
			lines = append(lines, fmt.Sprintf("%s = %t", r.Name, m.Int(r.Name) != 0))
		default:
			lines = append(lines, fmt.Sprintf("%s = %d", r.Name, m.Int(r.Name)))
		}
	}
	dlq := "false"
	if name := m.Text("dlq"); name != "" {
		dlq = quoted(name)
	}
	return append(lines, "dlq = "+dlq)
}

// exportHooks writes the hooks of queues into a directory, and returns the lines that name them.
func (c *call) exportHooks(names []string, dir string) (map[string][]string, error) {
	reply, err := c.do("FILA.SCRIPT", "LIST")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // they are no secrets
		return nil, err
	}
	lines := map[string][]string{}
	for _, m := range client.Maps(reply) {
		queue, hook := m.Text("queue"), m.Text("hook")
		if !slices.Contains(names, queue) {
			continue
		}
		source, err := c.do("FILA.SCRIPT", "GET", queue, hook)
		if err != nil {
			return nil, err
		}
		if source == nil {
			continue // it was removed meanwhile
		}
		path := filepath.Join(dir, hookFileName(queue, hook))
		if err := os.WriteFile(path, []byte(client.Text(source)), 0o644); err != nil { //nolint:gosec // as above
			return nil, err
		}
		lines[queue] = append(lines[queue], hook+" = "+quoted(path))
	}
	return lines, nil
}

// quoted is a string of TOML.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
