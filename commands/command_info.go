package commands

import "github.com/faisca/fila/resp"

// keySpec says where a command names queues, counted from its own name: in the
// words first to last, behind the number at first, or behind a word.
type keySpec struct {
	arg         *Arg
	first, last int
	counted     bool
	keyword     string // "" for a position
}

// keySpecs works out where the keys of a command are, those with a position
// first.
func (c *command) keySpecs() []keySpec {
	var specs []keySpec
	at := c.words
	for i := range c.positional {
		a := c.positional[i].arg
		switch {
		case a.Type != Key:
		case a.CountedBy != "":
			specs = append(specs, keySpec{arg: a, first: at - 1, counted: true})
		case a.Multiple:
			specs = append(specs, keySpec{arg: a, first: at, last: -1})
		default:
			specs = append(specs, keySpec{arg: a, first: at, last: at})
		}
		at++
	}
	for i := range c.options {
		if a := c.options[i].arg; a.Type == Key {
			specs = append(specs, keySpec{arg: a, first: c.words + 1, keyword: a.Token})
		}
	}
	return specs
}

// hasKeys reports whether the command names queues.
func (c *command) hasKeys() bool { return len(c.keySpecs()) > 0 }

// keyFlags says what the command does to a queue that the argument names, in
// Redis' words.
func (c *command) keyFlags(a *Arg) []string {
	switch a.access(c.spec) {
	case Look:
		return []string{"RO"}
	case Consume:
		if c.spec.has("readonly") {
			return []string{"RO", "access"}
		}
	case Produce:
		return []string{"RW", "insert"}
	case ByFlags, Manage, Listen, ListenPattern:
	}
	return []string{"RW", "access", "update"}
}

// writeCommand writes the ten elements with which COMMAND INFO describes a
// command. Cluster clients route by them.
func writeCommand(w *resp.Writer, c *command) {
	keys := c.keySpecs()
	w.Array(10)
	w.BulkString(c.name)
	w.Int(int64(c.arity))
	writeStatusSet(w, "", c.spec.Flags)
	first, last, step := int64(0), int64(0), int64(0)
	if len(keys) > 0 && !keys[0].counted && keys[0].keyword == "" {
		first, last, step = int64(keys[0].first), int64(keys[0].last), 1
	}
	w.Int(first)
	w.Int(last)
	w.Int(step)
	writeStatusSet(w, "@", c.spec.categories())
	w.Set(len(c.spec.Tips))
	for _, tip := range c.spec.Tips {
		w.BulkString(tip)
	}
	w.Set(len(keys))
	for i := range keys {
		writeKeySpec(w, c, &keys[i])
	}
	if len(c.subOrder) == 0 {
		w.Set(0)
		return
	}
	w.Array(len(c.subOrder))
	for _, sub := range c.subOrder {
		writeCommand(w, sub)
	}
}

func writeKeySpec(w *resp.Writer, c *command, keys *keySpec) {
	w.Map(3)
	w.BulkString("flags")
	writeStatusSet(w, "", c.keyFlags(keys.arg))
	w.BulkString("begin_search")
	if keys.keyword != "" {
		writeKeyword(w, keys)
	} else {
		writeSearch(w, "index", searchField{"index", keys.first})
	}
	w.BulkString("find_keys")
	if keys.counted {
		writeSearch(w, "keynum", searchField{"keynumidx", 0}, searchField{"firstkey", 1}, searchField{"keystep", 1})
		return
	}
	last := min(keys.last, 0) // counted from the first, or from the end when negative
	writeSearch(w, "range", searchField{"lastkey", last}, searchField{"keystep", 1}, searchField{"limit", 0})
}

// writeKeyword writes that a key stands behind a word, which is looked for from
// first on.
func writeKeyword(w *resp.Writer, keys *keySpec) {
	w.Map(2)
	w.BulkString("type")
	w.BulkString("keyword")
	w.BulkString("spec")
	w.Map(2)
	w.BulkString("keyword")
	w.BulkString(keys.keyword)
	w.BulkString("startfrom")
	w.Int(int64(keys.first))
}

type searchField struct {
	name  string
	value int
}

func writeSearch(w *resp.Writer, kind string, spec ...searchField) {
	w.Map(2)
	w.BulkString("type")
	w.BulkString(kind)
	w.BulkString("spec")
	w.Map(len(spec))
	for _, f := range spec {
		w.BulkString(f.name)
		w.Int(int64(f.value))
	}
}

func writeStatusSet(w *resp.Writer, prefix string, words []string) {
	w.Set(len(words))
	for _, word := range words {
		w.Status(prefix + word)
	}
}
