package integration_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var (
	damagedStores = flag.Int("damaged", 8, "how many stores are damaged")
	damageSeed    = flag.Uint64("damage-seed", 1, "what chance decides about the damage")
)

// TestDamagedStoresAreRefusedReportedOrServedRight damages stores in ways that chance
// decides, a few here, and as many as one likes in make damage.
func TestDamagedStoresAreRefusedReportedOrServedRight(t *testing.T) {
	program := filepath.Join(t.TempDir(), "damage")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./damage").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "-bin", binary(t), "-n", strconv.Itoa(*damagedStores), "-seed", strconv.FormatUint(*damageSeed, 10))
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "verdict: every damaged store") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
