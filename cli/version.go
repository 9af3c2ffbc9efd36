package cli

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// next is the release that is being worked on. It only counts in a build that is not of a
// commit with a tag of its own.
const next = "0.1.1"

// Version is the release of Fila that this binary is, as the tag of its commit says: v0.1.0
// makes 0.1.0. Any other build, one with changes that are not committed included, is the
// next release with -dev behind it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return release(info.Main.Version)
	}
	return release("")
}

// release makes a version of what the Go tool has recorded as the main module's: a tag, a
// pseudo-version where the commit has none, each with +dirty behind it where files were
// changed, or "(devel)" where it did not ask git.
func release(module string) string {
	if tag := regexp.MustCompile(`^v(\d+\.\d+\.\d+(-rc\.\d+)?)$`).FindStringSubmatch(module); tag != nil {
		return tag[1]
	}
	return next + "-dev"
}

func versionCommand(p Program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Say which Fila, RocksDB and Go this is",
		Example: "  fila version\n  fila --version | head -n 1",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versions(p))
			return err
		},
	}
}

// versionFlag gives root --version. Cobra has one of its own, whose template would put
// text/template into the binary, and with it what the linker leaves out otherwise: 3 MB.
func versionFlag(root *cobra.Command, p Program) {
	asked := root.Flags().BoolP("version", "v", false, "say which Fila, RocksDB and Go this is")
	serve := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*asked {
			return serve(cmd, args)
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), versions(p))
		return err
	}
}

// versions are of Fila and of what it was built from, a line each.
func versions(p Program) string {
	rocks := p.RocksDB
	if rocks == "" {
		rocks = "not in this build"
	}
	return fmt.Sprintf("fila %s\ncommit %s\nrocksdb %s\ngo %s %s/%s\n", Version(), Commit(), rocks, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Commit is what the binary was built from, as the Go tool recorded it.
func Commit() string {
	commit, changed := "unknown", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return commit
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return commit + changed
}
