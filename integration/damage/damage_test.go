package main

import (
	"flag"
	"strconv"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
)

var (
	damagedStores = flag.Int("damaged", 8, "how many stores are damaged")
	damageSeed    = flag.Uint64("damage-seed", 1, "what chance decides about the damage")
)

// TestDamagedStoresAreRefusedReportedOrServedRight damages a few stores at random. make damage does
// so for any number.
func TestDamagedStoresAreRefusedReportedOrServedRight(t *testing.T) {
	if testing.Short() {
		*damagedStores = min(*damagedStores, 3)
	}
	program, err := harness.Build(t.Context(), "damage", "./integration/damage")
	if err != nil {
		t.Fatal(err)
	}
	out, code, err := harness.Run(t.Context(), []string{"TMPDIR=" + t.TempDir()},
		program, "-bin", kit.Binary(t), "-n", strconv.Itoa(*damagedStores), "-seed", strconv.FormatUint(*damageSeed, 10))
	if err != nil || code != 0 || !strings.Contains(out, "verdict: every damaged store") {
		t.Fatalf("exit code %d (%v):\n%s", code, err, out)
	}
	t.Log(out)
}
