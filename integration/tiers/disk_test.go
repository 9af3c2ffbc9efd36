package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func TestARunNeedsRoomOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	if err := enoughDisk(1, dir, missing); err != nil {
		t.Error(err)
	}
	err := enoughDisk(math.MaxUint64, dir, missing)
	if err == nil || !strings.HasPrefix(err.Error(), dir+" has ") || !strings.Contains(err.Error(), "go clean -cache") {
		t.Errorf("with less than a run needs: %v", err)
	}
}
