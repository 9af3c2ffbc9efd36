package tidy

import (
	"go/ast"
	"testing"
)

// metaLimit bounds the files that name a field of storage.Meta: what a producer says about a message is one
// value, which most files hand on as a whole. The listed names are those of fields of other types as well,
// such as the cost of what is next in a key.
func metaLimit() limit {
	return limit{"files name it", 6, map[string]int{
		"Throttles": 18, "Budgets": 28, "Charge": 22, "Weight": 19, "Cost": 15, "Unique": 10,
	}}
}

func TestMetaIsHandedOnAsAWhole(t *testing.T) {
	fields, files := map[string]bool{}, map[string]int{}
	all := sources(t)
	for _, s := range all {
		if s.path == "storage/meta.go" {
			fields = fieldsOf(s, "Meta")
		}
	}
	if len(fields) == 0 {
		t.Fatal("storage/meta.go has no Meta")
	}
	for _, s := range all {
		if s.test() || !seesMeta(s) {
			continue
		}
		for name := range namesIn(s, fields) {
			files[name]++
		}
	}
	report(t, metaLimit().check(files))
}

// seesMeta reports whether a file may have a Meta.
func seesMeta(s source) bool {
	if s.pkg() == "storage" || s.pkg() == "engine" {
		return true
	}
	imports := s.imports()
	for _, p := range []string{"storage", "engine", "internal/hook"} {
		if imports[module+"/"+p] != "" {
			return true
		}
	}
	return false
}

// fieldsOf returns the names of the fields of a struct.
func fieldsOf(s source, of string) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != of {
			return true
		}
		if x, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range x.Fields.List {
				for _, name := range f.Names {
					names[name.Name] = true
				}
			}
		}
		return false
	})
	return names
}

// namesIn returns those of the names that a file has as a selector, as a key of a literal, or in a declaration.
func namesIn(s source, names map[string]bool) map[string]bool {
	found := map[string]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && names[id.Name] {
			found[id.Name] = true
		}
		return true
	})
	return found
}

func TestTheMetaRuleSeesBothSides(t *testing.T) {
	meta := fieldsOf(parse(t, "storage/meta.go", "package storage\ntype Other struct{ C int }\ntype Meta struct {\n\tA, B int // C\n}"), "Meta")
	if len(meta) != 2 || !meta["A"] || !meta["B"] {
		t.Errorf("fields %v, want A and B", meta)
	}
	found := namesIn(parse(t, "engine/x.go", "package engine\n// B\nfunc f(m Meta) int { return m.A }"), meta)
	if len(found) != 1 || !found["A"] {
		t.Errorf("found %v, want A", found)
	}
	most := metaLimit().most
	wantBreach(t, metaLimit().check(map[string]int{"New": most + 1}), "New")
	if c := metaLimit().check(map[string]int{"New": most}); c != nil {
		t.Error(c)
	}
}
