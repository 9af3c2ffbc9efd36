package tidy

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryGuaranteeNamesTestsThatExist verifies that each row of the tables in
// docs/explanation/guarantees.md names at least one test, and that these tests exist. The generated table of
// the costs of commands is exempt: one test holds for all of its rows.
func TestEveryGuaranteeNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "explanation", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test() && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	}
	report(t, unproven(string(text), tests))
}

// unproven returns rows without a test and names of tests that do not exist.
func unproven(text string, tests map[string]bool) []string {
	var complaints []string
	lines := strings.Split(text, "\n")
	generated := false
	for i, line := range lines {
		if strings.HasPrefix(line, "<!-- ") {
			generated = strings.HasPrefix(line, "<!-- Generated ")
		}
		names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`").FindAllStringSubmatch(line, -1)
		head := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
		if strings.HasPrefix(line, "| ") && !head && !generated && len(names) == 0 {
			complaints = append(complaints, fmt.Sprintf("docs/explanation/guarantees.md:%d: a promise without a test", i+1))
		}
		for _, n := range names {
			if !tests[n[1]] {
				complaints = append(complaints, fmt.Sprintf("docs/explanation/guarantees.md:%d: there is no %s", i+1, n[1]))
			}
		}
	}
	return complaints
}

func TestTheRuleAboutGuaranteesSeesABreach(t *testing.T) {
	tests := map[string]bool{"TestA": true}
	wantBreach(t, unproven("| event | tests |\n|---|---|\n| fire | none |", tests), "guarantees.md:3: a promise without a test")
	wantBreach(t, unproven("| flood | `TestB`, `TestA` |", tests), "there is no TestB")
	if c := unproven("<!-- Generated -->\n| cost |\n|---|\n| none |\n<!-- End -->", tests); c != nil {
		t.Error(c)
	}
	wantBreach(t, unproven("<!-- Generated -->\n<!-- End -->\n| event | tests |\n|---|---|\n| fire | none |", tests), "guarantees.md:5: a promise without a test")
	if c := unproven("text\n| event | tests |\n|---|---|\n| fire | `TestA` |", tests); c != nil {
		t.Error(c)
	}
}
