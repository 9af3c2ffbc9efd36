package commands

import (
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func info() Spec {
	return Spec{
		Name: "INFO", Group: "server", Since: "1.0.0", Complexity: "O(N) where N is the number of queues", Returns: "text",
		Summary: "Returns figures of the server, in sections.",
		Differs: "Has the sections " + strings.Join(infoSections(), ", ") + "; the last one is Fila's own. " +
			"Without a name, and for default, it shows all but " + strings.Join(infoOnRequest(), ", ") + "; all and everything show these as well. " +
			"What a figure of Redis would count and Fila does not have is 0.",
		Flags: []string{"loading", "stale"},
		ACL:   []string{"dangerous"},
		Tips:  []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		Args:  []Arg{{Name: "section", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{
			{"INFO nosuch", `""`},
			{"INFO server", "..."},
		},
		Parse: func(s *Session, in *input) (call, error) {
			c := &infoCall{blank: s.recovering, loading: s.recovering && s.handler.nodes.cluster == nil}
			for _, s := range in.List("section") {
				c.sections = append(c.sections, strings.ToLower(command.Clip(s)))
			}
			return c, nil
		},
	}
}

func infoSections() []string {
	return []string{
		"server", "clients", "memory", "persistence", "stats", "replication", "cpu", "modules", "commandstats", "errorstats", "latencystats",
		"cluster", "keyspace", "fila",
	}
}

// infoOnRequest are the sections that are shown only on request.
func infoOnRequest() []string { return []string{"commandstats", "latencystats"} }

type infoCall struct {
	sections []string // empty: all
	blank    bool     // there is no engine, or it recovers: its figures are zeros
	loading  bool     // it recovers
	stats    engine.Stats
}

// Apply implements engine.Call.
func (c *infoCall) Apply(tx *engine.Tx) error {
	c.stats = tx.Stats()
	return nil
}

// Render writes the requested sections in the order of infoSections.
func (c *infoCall) Render(h *Handler, w *resp.Writer) error {
	var b strings.Builder
	for _, name := range infoSections() {
		if !c.wants(name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + infoTitle(name) + "\r\n")
		f := c.section(h, name)
		for i := range f {
			b.WriteString(f[i].name + ":")
			if f[i].kind == fieldNumber {
				b.WriteString(strconv.FormatInt(f[i].num, 10))
			}
			b.WriteString(f[i].text + "\r\n")
		}
	}
	w.Verbatim(b.String())
	return nil
}

// wants reports whether the section was requested.
func (c *infoCall) wants(section string) bool {
	asked := func(word string) bool { return slices.Contains(c.sections, word) }
	if asked(section) || asked("all") || asked("everything") {
		return true
	}
	return (len(c.sections) == 0 || asked("default")) && !slices.Contains(infoOnRequest(), section)
}

func infoTitle(section string) string {
	if section == "cpu" {
		return "CPU"
	}
	return strings.ToUpper(section[:1]) + section[1:]
}
