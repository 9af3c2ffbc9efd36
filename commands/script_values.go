package commands

import (
	"encoding/hex"
	"math"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// The commands of this file are about what scripts read: the runtime configuration, and signals.

func configValues() Spec {
	return container("FILA.CONFIG", "fila", "0.1.0", "the commands that manage the runtime configuration, which scripts read with fila.get", configValueDel(), configValueGet(), configValueList(), configValueSet())
}

func configValueSet() Spec {
	return Spec{
		Name: "SET", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of values and M the number of stored values",
		Returns: "status",
		Summary: "Sets values of the runtime configuration, all or none. Messages enqueued after the reply see them.",
		Flags:   []string{"write", "denyoom"},
		ACL:     []string{"admin"},
		Args: []Arg{{Name: "pair", Type: Block, Multiple: true, Args: []Arg{
			{Name: "key", Type: String}, {Name: "value", Type: String},
		}}},
		Examples: []Example{{"FILA.CONFIG SET weight:gold 5 weight:silver 2", "OK"}},
		Parse: func(_ *Session, in *input) (call, error) {
			words := in.List("pair")
			if len(words)%2 != 0 {
				return nil, command.WrongArity(in.Cmd)
			}
			size, values := 0, make(map[string]string, len(words)/2)
			for i := 0; i < len(words); i += 2 {
				values[string(words[i])] = string(words[i+1])
				size += len(words[i]) + len(words[i+1])
			}
			return &configValueSetCall{func(tx *engine.Tx) error { return tx.SetConfig(values) }, size}, nil
		},
	}
}

type configValueSetCall struct {
	okCall
	size int
}

// Bytes implements weigher.
func (c *configValueSetCall) Bytes() int { return c.size }

func configValueGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of stored values", Returns: "string or nil",
		Summary: "Returns a value of the runtime configuration, nil if there is none.",
		Flags:   []string{"readonly", "fast"},
		Args:    []Arg{{Name: "key", Type: String}},
		Examples: []Example{
			{"FILA.CONFIG SET weight:gold 5", "OK"},
			{"FILA.CONFIG GET weight:gold", `"5"`},
			{"FILA.CONFIG GET weight:silver", "(nil)"},
		},
		Room:   always(configValueRoom),
		Memory: "10 KiB, the largest value",
		Parse: func(_ *Session, in *input) (call, error) {
			key := in.Text("key")
			return answerOrNil(func(tx *engine.Tx) (string, bool) { return tx.Config(key) }, (*resp.Writer).BulkString), nil
		},
	}
}

func configValueDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of keys and M the number of stored values",
		Returns: "integer",
		Summary: "Removes values of the runtime configuration and returns the number of removed values.",
		Flags:   []string{"write"},
		ACL:     []string{"admin"},
		Args:    []Arg{{Name: "key", Type: String, Multiple: true}},
		Examples: []Example{
			{"FILA.CONFIG SET weight:gold 5", "OK"},
			{"FILA.CONFIG DEL weight:gold weight:silver", "(integer) 1"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			var keys []string
			for _, word := range in.List("key") {
				keys = append(keys, string(word))
			}
			return answerInt(func(tx *engine.Tx) (int, error) { return tx.DeleteConfig(keys) }), nil
		},
	}
}

func configValueList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(log(M)+N) where M is the number of stored values and N is COUNT",
		Returns: "array (string, array of string)",
		Summary: "Returns the runtime configuration in the order of its keys, a page at a time.",
		Reply: "An array: the next cursor, 0 at the end, and an array of keys, each followed by its value. " +
			"The cursor is opaque. What exists during the whole iteration is returned exactly once.",
		Flags: []string{"readonly"},
		Args: []Arg{
			{Name: "p", Type: String, Token: "PREFIX", Optional: true},
			{Name: "c", Type: String, Token: "CURSOR", Optional: true},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
		},
		Examples: []Example{
			{"FILA.CONFIG SET weight:gold 5 weight:silver 2 maintenance on", "OK"},
			{"FILA.CONFIG LIST PREFIX weight:", `1) "0"
2) 1) "weight:gold"
   2) "5"
   3) "weight:silver"
   4) "2"`},
		},
		Room:   configRoom,
		Memory: "4 MiB: the page ends early",
		Parse:  parseConfigList,
	}
}

// configValueListCall lists the keys in order. Its cursor is the last key of the page in hexadecimal:
// it is never "0", and does not suggest that clients can build one from a key.
type configValueListCall struct {
	prefix, after string
	count, bytes  int      // at most
	next          string   // "" at the end
	pairs         []string // key, value, ...
}

func parseConfigList(s *Session, in *input) (call, error) {
	c := &configValueListCall{prefix: string(in.Bytes("prefix")), count: int(in.Integer("count", pageCount)), bytes: min(s.handler.cfg.Limits.ReplyBytes, configPageBytes)}
	cursor := string(in.Bytes("cursor"))
	if cursor == "" && !in.Has("cursor") || cursor == "0" {
		return c, nil
	}
	after, err := hex.DecodeString(cursor)
	if err != nil || len(after) == 0 {
		return nil, command.Refuse("ERR", "CURSOR must be 0 or what the page before has answered, not '"+command.Clip(in.Bytes("cursor"))+"'")
	}
	c.after = string(after)
	return c, nil
}

// Apply implements engine.Call.
func (c *configValueListCall) Apply(tx *engine.Tx) error {
	keys := tx.ConfigKeys(c.prefix, c.after, c.count+1)
	size := 0
	for i, k := range keys {
		v, _ := tx.Config(k)
		size += len(k) + len(v)
		if i == c.count || i > 0 && size > c.bytes {
			c.next = keys[i-1]
			break
		}
		c.pairs = append(c.pairs, k, v)
	}
	return nil
}

// Render writes the next cursor and the pairs.
func (c *configValueListCall) Render(_ *Handler, w *resp.Writer) error {
	w.Array(2)
	if c.next == "" {
		w.BulkString("0")
	} else {
		w.BulkString(hex.EncodeToString([]byte(c.next)))
	}
	writeTexts(w, c.pairs)
	return nil
}

func signal() Spec {
	return container("FILA.SIGNAL", "fila", "0.1.0", "the commands of signals: sums that fade with time", signalAdd(), signalDel(), signalGet(), signalList())
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
			add := engine.SignalAdd{Subject: in.Text("subject"), Name: in.Text("name"), Value: 1}
			if v := in.Double("value"); v != nil {
				add.Value = *v
			}
			if in.Has("at") {
				at := in.Integer("at", 0)
				add.AtMs = &at
			}
			return answerOK(func(tx *engine.Tx) error { return tx.AddSignal(&add) }), nil
		},
	}
}

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
			of := engine.Signals{Subject: in.Text("subject"), Name: in.Text("name")}
			return answerMaps(func(tx *engine.Tx) ([]engine.SignalInfo, error) { return tx.Signals(&of) }, signalFields), in.Filled("name", "name", allNames)
		},
	}
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
		Parse: func(_ *Session, in *input) (call, error) {
			p := parsePage(in)
			return answerPage(func(tx *engine.Tx) (uint64, []engine.SignalInfo, error) {
				return tx.ListSignals(p.cursor, p.count, p.match)
			}, signalFields), nil
		},
	}
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
			subject, name := in.Text("subject"), in.Text("name")
			return answerInt(func(tx *engine.Tx) (int, error) { return tx.DeleteSignals(subject, name) }), in.Filled("name", "name", allNames)
		},
	}
}
