package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGlossariesAgree verifies that each term in the glossary of engine/doc.go is a term of
// docs/reference/glossary.md: a word gets its meaning in one place.
func TestGlossariesAgree(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	used := termsOfPackage(read("engine/doc.go"))
	if len(used) < 80 {
		t.Errorf("engine/doc.go: the rule has seen %d terms, want at least 80", len(used))
	}
	report(t, undefined(used, termsOfGlossary(read("docs/reference/glossary.md"))))
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
			complaints = append(complaints, fmt.Sprintf("engine/doc.go: %q is not a term of docs/reference/glossary.md", term))
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
