package compat

import (
	"strings"

	"github.com/faisca/fila/internal/command"
)

// costsTable returns the table of docs/explanation/guarantees.md that states the memory and the work in the loop of
// every command. Commands of the same cost share a row. Fila's own commands come first.
func costsTable(commands []command.Description) string {
	type cost struct{ memory, loop string }
	var order []cost
	names := map[cost][]string{}
	for _, native := range []bool{true, false} {
		for i := range commands {
			d := &commands[i]
			if d.Native != native || strings.HasSuffix(d.Display, " HELP") {
				continue
			}
			c := cost{memory: d.Memory, loop: d.Complexity}
			if c.memory == "" {
				c.memory = "4 KiB"
			}
			if d.Local {
				c.loop = "none"
			}
			if names[c] == nil {
				order = append(order, c)
			}
			names[c] = append(names[c], "`"+d.Display+"`")
		}
	}
	p := &page{}
	p.WriteString("| command | memory | in the loop |\n|---|---|---|\n")
	for _, c := range order {
		p.writeRow(strings.Join(names[c], ", "), c.memory, c.loop)
	}
	return p.String()
}
