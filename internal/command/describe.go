package command

// Description describes a command for documents.
type Description struct {
	Name      string // lower case with its container: "fila.queue|create"
	Display   string // as a user types it: "FILA.QUEUE CREATE"
	Arguments string // on one line

	Summary, Returns, Reply, Differs, Since, Complexity string

	Memory string // "" means the default bound
	Local  bool   // answered by the connection; the loop has no work

	Flags      []string
	Categories []string
	Needs      []Need
	Examples   []Example
	Native     bool
}

// Describe returns the descriptions of all commands and subcommands that can be executed, sorted by
// name.
func (t *Table[S, C]) Describe() []Description {
	var all []Description
	for _, container := range t.Commands {
		for _, c := range container.Executable() {
			s := c.Spec
			all = append(all, Description{
				Name: c.Name, Display: c.Display, Arguments: c.usage,
				Summary: s.Summary, Returns: s.Returns, Reply: s.Reply, Differs: s.Differs, Since: s.Since,
				Complexity: s.Complexity, Memory: s.Memory, Local: s.Local != nil,
				Flags: s.Flags, Categories: s.Categories(), Needs: c.Needs(), Examples: s.Examples, Native: container.Spec.Native(),
			})
		}
	}
	return all
}

// UsageLine returns the usage of the whole command on one line.
func (d *Description) UsageLine() string {
	if d.Arguments == "" {
		return d.Display
	}
	return d.Display + " " + d.Arguments
}
