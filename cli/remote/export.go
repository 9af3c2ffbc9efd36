package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/queueset"
)

// export writes queues in TOML.
func (c *call) export() error {
	names := c.args["QUEUE"]
	if len(names) == 0 {
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
	return nil
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
