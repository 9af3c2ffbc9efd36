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

// What docs/guarantees.md promises, a test must hold Fila to: each row of its tables
// names one at least, and there are such tests. That the second table has each command is
// a test of package commands.
func TestEveryGuaranteeNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "guarantees.md"))
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

// unproven finds rows without a test and tests that are not there.
func unproven(text string, tests map[string]bool) []string {
	var complaints []string
	for i, line := range strings.Split(text, "\n") {
		names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`").FindAllStringSubmatch(line, -1)
		head := strings.HasPrefix(line, "| event |") || strings.HasPrefix(line, "| command |")
		if strings.HasPrefix(line, "| ") && !head && len(names) == 0 {
			complaints = append(complaints, fmt.Sprintf("docs/guarantees.md:%d: a promise without a test", i+1))
		}
		for _, n := range names {
			if !tests[n[1]] {
				complaints = append(complaints, fmt.Sprintf("docs/guarantees.md:%d: there is no %s", i+1, n[1]))
			}
		}
	}
	return complaints
}

func TestTheRuleAboutGuaranteesSeesABreach(t *testing.T) {
	tests := map[string]bool{"TestA": true}
	wantBreach(t, unproven("| event | tests |\n|---|---|\n| fire | none |", tests), "guarantees.md:3: a promise without a test")
	wantBreach(t, unproven("| flood | `TestB`, `TestA` |", tests), "there is no TestB")
	if c := unproven("text\n| event | tests |\n|---|---|\n| fire | `TestA` |", tests); c != nil {
		t.Error(c)
	}
}
