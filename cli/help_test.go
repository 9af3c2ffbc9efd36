package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// helps is what --help says of each command, by what is typed.
func helps(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	var visit func(cmd *cobra.Command, words []string)
	visit = func(cmd *cobra.Command, words []string) {
		code, said, stderr := run(t, never(t), append(words, "--help")...)
		if code != 0 || said == "" || stderr != "" {
			t.Errorf("fila %q --help: exit %d, %q", words, code, stderr)
		}
		all[strings.Join(words, " ")] = said
		for _, sub := range cmd.Commands() {
			visit(sub, append(slices.Clip(words), sub.Name()))
		}
	}
	visit(rootCommand(Program{}, Process{}), nil)
	return all
}

func TestHelpListsSubcommands(t *testing.T) {
	all := helps(t)
	if _, ok := all["queues apply"]; !ok {
		t.Fatalf("there is no fila queues apply; there are %d commands", len(all))
	}
	var check func(cmd *cobra.Command, typed string)
	check = func(cmd *cobra.Command, typed string) {
		for _, sub := range cmd.Commands() {
			name := strings.TrimSpace(typed + " " + sub.Name())
			line := regexp.MustCompile(`(?m)^  ` + sub.Name() + ` +` + regexp.QuoteMeta(sub.Short) + `$`)
			if !sub.Hidden && !line.MatchString(all[typed]) {
				t.Errorf("fila %s --help does not list %s", typed, sub.Name())
			}
			check(sub, name)
		}
	}
	check(rootCommand(Program{}, Process{}), "")
}

func TestHelpIsPlainText(t *testing.T) {
	markdown := regexp.MustCompile("\\]\\(|`|\\*\\*|(?m)^#")
	for typed, said := range helps(t) {
		for line := range strings.Lines(said) {
			if markdown.MatchString(line) {
				t.Errorf("fila %s --help: %s", typed, line)
			}
		}
	}
}
