package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// baseVariable names the commit since which a change is looked at.
const baseVariable = "BASE"

// touchesAdapters reports whether changed files, documents aside, are among what the adapters depend on. Then `make test`
// has their tests at length, otherwise a short check of each. The dashboard has no such rule: at length it takes ten
// minutes, and the commands that it uses change with nearly everything.
func touchesAdapters(changed []string) bool {
	sources := slices.DeleteFunc(slices.Clone(changed), func(file string) bool { return strings.HasSuffix(file, ".md") })
	return touches(sources, "adapters/", "commands/", "resp/")
}

// touchesPackages reports whether changed files are among those of the packages of the adapters, READMEs included. Then
// `make test` installs the packages, and follows the READMEs.
func touchesPackages(changed []string) bool { return touches(changed, "adapters/", "tools/packages/") }

// touchesChart reports whether changed files are among those of the Helm chart, or name the settings that it gives. Then
// `make test` renders it, and its module is linted: Helm's library takes long to build.
func touchesChart(changed []string) bool {
	return touches(changed, "deploy/", "integration/chart/", "cli/settings", "cli/version.go")
}

// touches reports whether one of the files begins with one of these.
func touches(changed []string, folders ...string) bool {
	return slices.ContainsFunc(changed, func(file string) bool {
		return slices.ContainsFunc(folders, func(of string) bool { return strings.HasPrefix(file, of) })
	})
}

// changes returns the files that differ from the base: the commit that BASE names, or the one at which this
// branch has left origin/main; on main itself, the commit before the newest. Sources without git have none.
func changes(ctx context.Context, root string) ([]string, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	base, named := os.LookupEnv(baseVariable)
	if !named {
		var err error
		if base, err = git("merge-base", "origin/main", "HEAD"); err != nil {
			base = "HEAD^" // there is no such branch
		} else if head, err := git("rev-parse", "HEAD"); err == nil && head == base {
			base = "HEAD^"
		}
	}
	out, err := git("diff", "--name-only", base)
	if err != nil && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s=%s is no commit to compare with: %w", baseVariable, base, err)
	}
	return strings.Fields(out), nil
}
