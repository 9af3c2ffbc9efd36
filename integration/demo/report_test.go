package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheVerdict(t *testing.T) {
	hashed := func(sums ...string) (found []result) {
		for _, s := range sums {
			found = append(found, result{Path: []byte("f"), Sum: s})
		}
		return found
	}
	failed := []result{{Path: []byte("f"), Error: "permission denied"}}
	for name, x := range map[string]struct {
		found []result
		real  string // output of sha256sum, "" if it cannot read the file
		fails bool
	}{
		"the same":                            {hashed("a"), "a", false},
		"the same, delivered three times":     {hashed("a", "a", "a"), "a", false},
		"different":                           {hashed("b"), "a", true},
		"different once":                      {hashed("a", "b"), "a", true},
		"never hashed":                        {nil, "a", true},
		"never hashed, and gone":              {nil, "", true},
		"no worker could read it":             {failed, "a", true},
		"nobody can read it":                  {failed, "", false},
		"gone after it was hashed":            {hashed("a"), "", false},
		"hashed once, and not the other time": {slices.Concat(hashed("a"), failed), "a", true},
	} {
		sums := map[string]string{}
		if x.real != "" {
			sums["f"] = x.real
		}
		r := &report{tree: &tree{files: []string{"f"}}, found: map[string][]result{}, took: time.Second}
		if x.found != nil {
			r.found["f"] = x.found
		}
		r.compare(sums)
		err := r.verdict()
		if (err != nil) != x.fails {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "f") {
			t.Errorf("%s: %v does not name the file", name, err)
		}
		var table strings.Builder
		if r.write(&table); strings.Contains(table.String(), "FAILED") != x.fails {
			t.Errorf("%s: %s", name, table.String())
		}
	}
}

func TestTheFairnessKeyIsThePackage(t *testing.T) {
	for path, want := range map[string]string{
		"/doc/bash/README": "bash", "/doc/bash/examples/a/b": "bash", "/doc/index": ".",
	} {
		for _, dir := range []string{"/doc", "/doc/"} {
			if got := pkg(dir, path); got != want {
				t.Errorf("%s below %s: %s, want %s", path, dir, got, want)
			}
		}
	}
}
