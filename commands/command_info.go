package commands

import "github.com/faisca/fila/resp"

// keyRange says where a command names its queues, counted from its own name: in
// the words first to last, or, with counted, behind the number at first.
type keyRange struct {
	first, last int
	counted     bool
}

// keyRange works out where the keys of a command are; none: the zero value.
func (c *command) keyRange() keyRange {
	at := c.words
	for i := range c.positional {
		a := c.positional[i].arg
		switch {
		case a.Type == Key && a.CountedBy != "":
			return keyRange{first: at - 1, counted: true}
		case a.Type == Key && a.Multiple:
			return keyRange{first: at, last: -1}
		case a.Type == Key:
			return keyRange{first: at, last: at}
		}
		at++
	}
	return keyRange{}
}

// writeCommand writes the ten elements with which COMMAND INFO describes a
// command. Cluster clients route by them.
func writeCommand(w *resp.Writer, c *command) {
	keys := c.keyRange()
	w.Array(10)
	w.BulkString(c.name)
	w.Int(int64(c.arity))
	writeStatusSet(w, "", c.spec.Flags)
	first, last, step := int64(0), int64(0), int64(0)
	if keys.first > 0 && !keys.counted {
		first, last, step = int64(keys.first), int64(keys.last), 1
	}
	w.Int(first)
	w.Int(last)
	w.Int(step)
	writeStatusSet(w, "@", c.spec.categories())
	w.Set(len(c.spec.Tips))
	for _, tip := range c.spec.Tips {
		w.BulkString(tip)
	}
	if keys.first == 0 {
		w.Set(0)
	} else {
		w.Set(1)
		writeKeySpec(w, c, keys)
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

func writeKeySpec(w *resp.Writer, c *command, keys keyRange) {
	w.Map(3)
	w.BulkString("flags")
	if c.spec.has("readonly") {
		writeStatusSet(w, "", []string{"RO", "access"})
	} else {
		writeStatusSet(w, "", []string{"RW", "access", "update"})
	}
	w.BulkString("begin_search")
	writeSearch(w, "index", searchField{"index", keys.first})
	w.BulkString("find_keys")
	if keys.counted {
		writeSearch(w, "keynum", searchField{"keynumidx", 0}, searchField{"firstkey", 1}, searchField{"keystep", 1})
		return
	}
	last := min(keys.last, 0) // counted from the first, or from the end when negative
	writeSearch(w, "range", searchField{"lastkey", last}, searchField{"keystep", 1}, searchField{"limit", 0})
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
