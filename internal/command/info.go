package command

import "github.com/faisca/fila/resp"

// keyFlags returns Redis' flags for what the command does to a queue named by the argument.
func (x *Syntax) keyFlags(a *Arg) []string {
	switch x.access(a) {
	case Look:
		return []string{"RO"}
	case Consume:
		if x.reads {
			return []string{"RO", "access"}
		}
	case Produce:
		return []string{"RW", "insert"}
	case ByFlags, Manage, Listen, ListenPattern:
	}
	return []string{"RW", "access", "update"}
}

// WriteInfo writes the ten elements of COMMAND INFO. Cluster clients route commands by them.
func (c *Command[S, C]) WriteInfo(w *resp.Writer) {
	keys := c.keySpecs()
	w.Array(10)
	w.BulkString(c.Name)
	w.Int(int64(c.Arity))
	WriteStatusSet(w, "", c.Spec.Flags)
	first, last, step := int64(0), int64(0), int64(0)
	if len(keys) > 0 && !keys[0].counted && keys[0].keyword == "" {
		first, last, step = int64(keys[0].first), int64(keys[0].last), 1
	}
	w.Int(first)
	w.Int(last)
	w.Int(step)
	WriteStatusSet(w, "@", c.Spec.Categories())
	w.Set(len(c.Spec.Tips))
	for _, tip := range c.Spec.Tips {
		w.BulkString(tip)
	}
	w.Set(len(keys))
	for i := range keys {
		c.writeKeySpec(w, &keys[i])
	}
	if len(c.Subs) == 0 {
		w.Set(0)
		return
	}
	w.Array(len(c.Subs))
	for _, sub := range c.Subs {
		sub.WriteInfo(w)
	}
}

func (x *Syntax) writeKeySpec(w *resp.Writer, keys *keySpec) {
	w.Map(3)
	w.BulkString("flags")
	WriteStatusSet(w, "", x.keyFlags(keys.arg))
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
	last := min(keys.last, 0) // relative to the first, or to the end if negative
	writeSearch(w, "range", searchField{"lastkey", last}, searchField{"keystep", 1}, searchField{"limit", 0})
}

// writeKeyword writes the key specification of a key that follows a keyword, searched from first on.
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

// WriteStatusSet writes a set of words, each with a prefix.
func WriteStatusSet(w *resp.Writer, prefix string, words []string) {
	w.Set(len(words))
	for _, word := range words {
		w.Status(prefix + word)
	}
}
