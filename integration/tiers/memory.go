package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// memory is which phases have passed with the sources as they are.
type memory struct {
	dir     string
	sources string // identifies the sources
	again   bool   // recall nothing
}

// kept is the record of a phase that has passed.
type kept struct {
	Sources   string
	Took, CPU time.Duration
	Counts    counts
}

// recall returns what earlier runs with the same sources have left.
func recall(ctx context.Context, root string, again bool) (*memory, error) {
	m := &memory{dir: filepath.Join(root, ".cache", "tiers", "passed"), again: again}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	m.sources, err = identity(ctx, root)
	return m, err
}

// identity returns the hash of the tree that a commit of all files, as they are now, would have.
func identity(ctx context.Context, root string) (string, error) {
	index := filepath.Join(root, ".cache", "tiers", "index")
	var tree string
	for _, args := range [][]string{{"read-tree", "HEAD"}, {"add", "--all"}, {"write-tree"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GIT_INDEX_FILE="+index)
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		tree = strings.TrimSpace(string(out))
	}
	return tree, nil
}

func (m *memory) file(phase string) string { return filepath.Join(m.dir, phase+".json") }

// passed returns the result of a phase that has passed before.
func (m *memory) passed(phase string) (result, bool) {
	if m == nil || m.again {
		return result{}, false
	}
	text, err := os.ReadFile(m.file(phase))
	var k kept
	if err != nil || json.Unmarshal(text, &k) != nil || k.Sources != m.sources {
		return result{}, false // none, or of other sources
	}
	return result{phase: phase, state: earlier, took: k.Took, cpu: k.CPU, counts: k.Counts}, true
}

// keep notes that a phase has passed.
func (m *memory) keep(res result) error {
	if m == nil {
		return nil
	}
	text, err := json.Marshal(kept{m.sources, res.took, res.cpu, res.counts})
	if err != nil {
		return err
	}
	return os.WriteFile(m.file(res.phase), text, 0o600)
}
