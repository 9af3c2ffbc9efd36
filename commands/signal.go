package commands

import (
	"math"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func signal() Spec {
	return Spec{
		Name: "FILA.SIGNAL", Group: "fila", Since: "0.1.0", Complexity: "Depends on subcommand.",
		Summary:     "A container for the commands of signals: sums that fade with time.",
		Subcommands: []Spec{signalAdd(), signalDel(), signalGet(), help("FILA.SIGNAL"), signalList()},
	}
}

func signalAdd() Spec {
	return Spec{
		Name: "ADD", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of signals", Returns: "status",
		Summary: "Adds a value, 1 if it is not given, to the signal with a name of a subject, as of now or of the time AT, which may be past. " +
			"A signal begins with its first value. Above limits.signals, one more takes the place of the one that was added to longest ago.",
		Flags: []string{"write", "denyoom", "fast"},
		ACL:   []string{"consume"},
		Args: []Arg{
			{Name: "subject", Type: String},
			{Name: "name", Type: String},
			{Name: "value", Type: Double, Optional: true},
			{Name: "unix-ms", Type: Integer, Token: "AT", Optional: true},
		},
		Examples: []Example{
			{"FILA.SIGNAL ADD provider:x refused", "OK"},
			{"FILA.SIGNAL ADD tenant-1 pages 12.5", "OK"},
			{"FILA.SIGNAL ADD tenant-1 pages 3 AT 1700000000000", "OK"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			c := &signalAddCall{add: engine.SignalAdd{Subject: in.Text("subject"), Name: in.Text("name"), Value: 1}}
			if v := in.Double("value"); v != nil {
				c.add.Value = *v
			}
			if in.Has("at") {
				at := in.Integer("at", 0)
				c.add.AtMs = &at
			}
			return c, nil
		},
	}
}

type signalAddCall struct {
	plainOK
	add engine.SignalAdd
}

// Apply implements engine.Call.
func (c *signalAddCall) Apply(tx *engine.Tx) error { return tx.AddSignal(&c.add) }

// allNames tells how to name all signals of a subject.
const allNames = "without it, it is all signals of the subject"

func signalGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of the subject's signals", Returns: "array of map",
		Summary: "Returns the signals of a subject by name, or the one with a name, as of now.",
		Flags:   []string{"readonly"},
		Reply: "An array of maps: subject name 1m 5m 1h 24h all velocity updated_at. The fields between name and velocity are the windows of signals.windows_ms, and the sum that never fades. " +
			"velocity is the rate per second in the first window less that in the second; with one window it is not there. updated_at is the time of the newest value.",
		Args: []Arg{
			{Name: "subject", Type: String},
			{Name: "name", Type: String, Optional: true},
		},
		Examples: []Example{
			{"FILA.SIGNAL GET tenant-1", "(empty array)"},
			{"FILA.SIGNAL ADD tenant-1 pages 12.5", "OK"},
			{"FILA.SIGNAL GET tenant-1 pages", "..."},
		},
		Memory: "400 bytes for each of the subject's signals",
		Room: func(s *Session, in *input) int {
			if in.Has("name") {
				return smallRoom
			}
			return smallRoom + s.handler.engine.Snapshot().SignalsOf(in.Text("subject"), math.MaxInt)*sizeOf[engine.SignalInfo]()*2
		},
		Parse: func(_ *Session, in *input) (call, error) {
			return &signalGetCall{of: engine.Signals{Subject: in.Text("subject"), Name: in.Text("name")}}, in.Filled("name", "name", allNames)
		},
	}
}

type signalGetCall struct {
	of   engine.Signals
	list []engine.SignalInfo
}

// Apply implements engine.Call.
func (c *signalGetCall) Apply(tx *engine.Tx) (err error) {
	c.list, err = tx.Signals(&c.of)
	return err
}

// Render writes an array of maps.
func (c *signalGetCall) Render(_ *Handler, w *resp.Writer) error {
	writeEach(w, len(c.list), func(i int) *fields { return signalFields(&c.list[i]) })
	return nil
}

func signalFields(s *engine.SignalInfo) *fields {
	f := newFields()
	f.text("subject", s.Subject)
	f.text("name", s.Name)
	for name, v := range s.Sums() {
		if name == "all" { // exact for whole numbers
			f.decimal(name, v)
			continue
		}
		f.sum(name, v)
	}
	if v, ok := s.Velocity(); ok {
		f.sum("velocity", v)
	}
	f.at("updated_at", s.UpdatedAt)
	return f
}

func signalList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT", Returns: pageOfMaps,
		Summary: "Returns the signals of all subjects, or of those that match, a page at a time.",
		Flags:   []string{"readonly"},
		Reply:   pageReply + "A signal is a map as in FILA.SIGNAL GET.",
		Args:    append([]Arg{}, pageOptions()...),
		Examples: []Example{
			{"FILA.SIGNAL LIST", "1) \"0\"\n2) (empty array)"},
			{"FILA.SIGNAL ADD provider:x refused", "OK"},
			{"FILA.SIGNAL LIST MATCH provider:* COUNT 100", "..."},
		},
		Room:   pageOf[engine.SignalInfo](1, 0),
		Memory: "800 bytes for each of COUNT",
		Parse:  func(_ *Session, in *input) (call, error) { return &signalListCall{page: parsePage(in)}, nil },
	}
}

type signalListCall struct {
	page
	list []engine.SignalInfo
}

// Apply implements engine.Call.
func (c *signalListCall) Apply(tx *engine.Tx) error {
	c.next, c.list = tx.ListSignals(c.cursor, c.count, c.match)
	return nil
}

// Render writes the next cursor and the signals.
func (c *signalListCall) Render(_ *Handler, w *resp.Writer) error {
	c.write(w, len(c.list), func(i int) *fields { return signalFields(&c.list[i]) })
	return nil
}

func signalDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of removed signals and M that of all", Returns: "integer",
		Summary: "Removes the signals of a subject, or the one with a name. Returns how many there were.",
		Flags:   []string{"write"},
		ACL:     []string{"admin"},
		Args: []Arg{
			{Name: "subject", Type: String},
			{Name: "name", Type: String, Optional: true},
		},
		Examples: []Example{
			{"FILA.SIGNAL ADD tenant-1 pages 12.5", "OK"},
			{"FILA.SIGNAL DEL tenant-1 pages", "(integer) 1"},
			{"FILA.SIGNAL DEL tenant-1", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			return &signalDelCall{subject: in.Text("subject"), name: in.Text("name")}, in.Filled("name", "name", allNames)
		},
	}
}

type signalDelCall struct {
	subject, name string
	counted
}

// Apply implements engine.Call.
func (c *signalDelCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.DeleteSignals(c.subject, c.name)
	return err
}
