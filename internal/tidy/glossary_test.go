package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGlossariesAgree verifies that each term in the glossaries of the engine and its rooms is a term of
// docs/reference/glossary.md, and in one of them only: a word gets its meaning in one place.
func TestGlossariesAgree(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var used []string
	for _, name := range []string{"engine/doc.go", "engine/dispatch/doc.go", "engine/budget/doc.go", "engine/cron/doc.go", "engine/topic/doc.go", "engine/group/group.go"} {
		used = append(used, termsOfPackage(read(name))...)
	}
	if len(used) < 110 {
		t.Errorf("the rule has seen %d terms, want at least 110", len(used))
	}
	report(t, undefined(used, termsOfGlossary(read("docs/reference/glossary.md"))))
	slices.Sort(used)
	for i, term := range used {
		if i > 0 && term == used[i-1] {
			t.Errorf("%q has its meaning twice", term)
		}
	}
}

// termsOfPackage returns the terms of a glossary in a package comment: lines of terms and a
// meaning, in columns. Several terms of a line are separated by commas.
func termsOfPackage(text string) []string {
	_, glossary, _ := strings.Cut(text, "# Glossary")
	var terms []string
	for line := range strings.Lines(glossary) {
		row, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(row, "  ")
		for term := range strings.SplitSeq(first, ",") {
			terms = append(terms, plainTerm(term))
		}
	}
	return terms
}

// termsOfGlossary returns the terms of a glossary in Markdown: the first cells of its rows.
func termsOfGlossary(text string) map[string]bool {
	terms := map[string]bool{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			terms[plainTerm(cells[1])] = true
		}
	}
	return terms
}

// plainTerm returns a term in lower case without its abbreviation in parentheses.
func plainTerm(term string) string {
	term, _, _ = strings.Cut(term, "(")
	return strings.ToLower(strings.TrimSpace(term))
}

func undefined(used []string, defined map[string]bool) []string {
	var complaints []string
	for _, term := range used {
		if !defined[term] {
			complaints = append(complaints, fmt.Sprintf("%q is not a term of docs/reference/glossary.md", term))
		}
	}
	return complaints
}

func TestTheRuleAboutGlossariesSeesABreach(t *testing.T) {
	used := termsOfPackage("// # Glossary\n//\n//\tqueue        messages\n//\tack, wink  ends\n")
	defined := termsOfGlossary("| term | meaning |\n|---|---|\n| queue (q) | A set. |\n| ack | End. |\n")
	if c := undefined(used, defined); len(c) != 1 {
		t.Errorf("complaints: %q, want one", c)
	}
	wantBreach(t, undefined(used, defined), `"wink" is not a term`)
}
