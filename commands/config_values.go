package commands

import (
	"encoding/hex"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func configValues() Spec {
	return Spec{
		Name: "FILA.CONFIG", Group: "fila", Since: "0.1.0", Complexity: "Depends on subcommand.",
		Summary:     "A container for the commands that manage the runtime configuration, which scripts read with fila.get.",
		Subcommands: []Spec{configValueDel(), configValueGet(), help("FILA.CONFIG"), configValueList(), configValueSet()},
	}
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
			c := &configValueSetCall{values: make(map[string]string, len(words)/2)}
			for i := 0; i < len(words); i += 2 {
				c.values[string(words[i])] = string(words[i+1])
				c.size += len(words[i]) + len(words[i+1])
			}
			return c, nil
		},
	}
}

type configValueSetCall struct {
	plainOK
	values map[string]string
	size   int
}

// Bytes implements weigher.
func (c *configValueSetCall) Bytes() int { return c.size }

// Apply implements engine.Call.
func (c *configValueSetCall) Apply(tx *engine.Tx) error { return tx.SetConfig(c.values) }

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
		Parse:  func(_ *Session, in *input) (call, error) { return &configValueGetCall{key: in.Text("key")}, nil },
	}
}

type configValueGetCall struct {
	key, value string
	found      bool
}

// Apply implements engine.Call.
func (c *configValueGetCall) Apply(tx *engine.Tx) error {
	c.value, c.found = tx.Config(c.key)
	return nil
}

// Render writes the value or nil.
func (c *configValueGetCall) Render(_ *Handler, w *resp.Writer) error {
	if !c.found {
		w.Null()
		return nil
	}
	w.BulkString(c.value)
	return nil
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
			c := &configValueDelCall{}
			for _, word := range in.List("key") {
				c.keys = append(c.keys, string(word))
			}
			return c, nil
		},
	}
}

type configValueDelCall struct {
	keys    []string
	removed int
}

// Apply implements engine.Call.
func (c *configValueDelCall) Apply(tx *engine.Tx) (err error) {
	c.removed, err = tx.DeleteConfig(c.keys)
	return err
}

// Render writes the number of deleted values.
func (c *configValueDelCall) Render(_ *Handler, w *resp.Writer) error {
	w.Int(int64(c.removed))
	return nil
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
	w.Array(len(c.pairs))
	for _, text := range c.pairs {
		w.BulkString(text)
	}
	return nil
}
