package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// worker runs a worker process until the run is over and forwards its results.
func (s *show) worker(ctx context.Context, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-worker", name, "-addr", s.broker.Addr())
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	// Closing its input makes the worker exit; WaitDelay gives it time to do so.
	cmd.Cancel, cmd.WaitDelay = input.Close, 5*time.Second
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%s printed %q: %w", name, lines.Text(), err)
		}
		send(ctx, s.results, r)
	}
	if err := cmd.Wait(); ctx.Err() == nil {
		return fmt.Errorf("%s exited early: %w", name, err)
	}
	return nil
}
