package harness

import (
	"context"
	"os"
	"os/exec"
)

// Run runs a program with additional environment variables and returns its output and exit code.
// err means that it could not be run.
func Run(ctx context.Context, env []string, program string, args ...string) (out string, code int, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return string(b), 0, err
	}
	return string(b), cmd.ProcessState.ExitCode(), nil
}
