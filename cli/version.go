package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is this release of Fila, or the next one with -dev behind it.
const Version = "0.1.0-dev"

func versionCommand(p Program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Say which Fila, RocksDB and Go this is",
		Example: "  fila version",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rocks := p.RocksDB
			if rocks == "" {
				rocks = "not in this build"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "fila %s\ncommit %s\nrocksdb %s\ngo %s %s/%s\n",
				Version, Commit(), rocks, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
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
