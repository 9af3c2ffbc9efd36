package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// Runs end after so many crashes, however long they take.
var (
	nodesHarms = flag.Int("torture-nodes", 10, "crashes of the torture of a cluster; a short run has fewer")
	kills      = flag.Int("torture", 20, "crashes of the torture by kills; a short run has fewer")
)

// harms returns the arguments for so many crashes, or fewer in a short run. Between two crashes there is so
// much work, in deliveries.
func harms(count, short, work int) []string {
	if testing.Short() {
		count = min(count, short)
	}
	return []string{"-t", "12h", "-n", strconv.Itoa(count), "-work", strconv.Itoa(work)}
}

// few returns the arguments for a load that leaves room to other tests, in a short run.
func few(args ...string) []string {
	if testing.Short() {
		args = append(args, "-producers", "3", "-consumers", "6", "-askers", "4", "-rate", "800", "-calm", "500ms")
	}
	return args
}

// built builds a program and returns its path.
func built(t *testing.T, name, pkg string, flags ...string) string {
	t.Helper()
	file, err := harness.Build(t.Context(), name, pkg, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// torture runs the torture program and returns its output and exit code.
func torture(t *testing.T, bin string, env []string, args ...string) (string, int) {
	t.Helper()
	program := built(t, "torture", "./integration/torture")
	// The directory of a failed run is removed with the test.
	out, code, err := harness.Run(t.Context(), append(env, "TMPDIR="+t.TempDir()), program, append([]string{"-bin", bin}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out, code
}

// crashes returns the number of crashes that a run reports.
func crashes(t *testing.T, out string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^(\d+) crashes;`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no count of crashes:\n%s", out)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTortureKeepsEveryPromise kills the broker every few seconds while clients use every feature.
func TestTortureKeepsEveryPromise(t *testing.T) {
	out, code := torture(t, kit.Binary(t), nil, few(append(harms(*kills, 4, 500), "-calm", "3500ms")...)...)
	wantKept(t, out, code)
	judged(t, out)
}

// judged verifies that a run has published, delivered from the ordered queue, and asked for results.
func judged(t *testing.T, out string) {
	t.Helper()
	m := regexp.MustCompile(`(\d+) publishes answered, .* (\d+) deliveries of the ordered queue, (\d+) of them not acked; (\d+) results asked for, (\d+) done and (\d+) dead, (\d+) of these while`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no counts of publishes, order and results:\n%s", out)
	}
	const dead = 6 // few messages die, so in a short run none of those may be asked for
	for i, n := range m[1:] {
		if n == "0" && (i+1 != dead || !testing.Short()) {
			t.Errorf("something was not tried: %s", m[0])
		}
	}
}

// TestPowerLossTakesNoMoreThanItMay cuts the power of the real store in every sync mode.
func TestPowerLossTakesNoMoreThanItMay(t *testing.T) {
	for _, mode := range []string{"always", "interval", "never"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode != "always" {
				testkit.AtLength(t)
			}
			args := append(harms(10, 3, 200), "-calm", "1s", "-by", "power", "-sync", mode)
			if mode == "always" { // large batches are synced in another way
				args = append(args, "-large", "6", "-rate", "600")
			}
			if mode == "never" { // writes enough between two cuts for several log files
				args = append(args, "-n", "4", "-calm", "4s", "-rate", "8000")
			}
			if testing.Short() {
				args = append(few(args...), "-rate", "400")
			}
			out, code := torture(t, kit.Binary(t), nil, args...)
			if code != 0 || !strings.Contains(out, "verdict: every promise was kept") {
				t.Fatalf("exit code %d:\n%s", code, out)
			}
			m := regexp.MustCompile(`took (\d+) bytes and (\d+) changes .* tore \d+ files; (\d+) acknowledged`).FindStringSubmatch(out)
			if len(m) != 4 {
				t.Fatalf("the output does not state what was lost:\n%s", out)
			}
			if m[1] == "0" && m[2] == "0" { // few bytes are unsynced at any time
				t.Errorf("the power cuts took nothing:\n%s", out)
			}
			if (m[3] == "0") != (mode == "always") {
				t.Errorf("%s acknowledged messages are gone:\n%s", m[3], out)
			}
			t.Log(out)
		})
	}
}

// TestAFullDiskLosesNothing fills the broker's file system and frees space again: writes are
// refused, reads continue, and writes resume without a restart.
func TestAFullDiskLosesNothing(t *testing.T) {
	testkit.AtLength(t)
	out, code := torture(t, kit.Binary(t), nil, append(harms(5, 5, 100), "-calm", "1s", "-by", "full")...)
	if strings.Contains(out, "no file system can be mounted here") {
		t.Logf("relying on TestADiskThatFailsLosesNothing: %s", out)
		return
	}
	wantKept(t, out, code)
}

// TestADiskThatFailsLosesNothing makes every sync fail for a while, or every write for lack of
// space, including those that reopen the store. Large batches among them are applied before their sync.
func TestADiskThatFailsLosesNothing(t *testing.T) {
	testkit.AtLength(t)
	for _, by := range []string{"no-space", "io-error"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			out, code := torture(t, kit.Binary(t), nil, append(harms(3, 3, 100), "-calm", "1s", "-by", by, "-large", "6", "-rate", "600")...)
			wantKept(t, out, code)
		})
	}
}

// TestTortureOfNodesKeepsEveryPromise kills, stops, cuts off and wipes the nodes of a cluster, fills
// their disks and brings old ones back, while clients of all nodes use every feature.
func TestTortureOfNodesKeepsEveryPromise(t *testing.T) {
	args := append(harms(*nodesHarms, 4, 300), "-nodes", "3", "-calm", "500ms")
	if testing.Short() { // a silence lasts longer than all others together
		args = append(args, "-by", strings.Join([]string{byKill, byStop, byWipe, byPartition, byBridge, byDown, byTransfer, byFull, byRow, byOld}, ","))
	}
	out, code := torture(t, kit.Binary(t), nil, few(args...)...)
	wantKept(t, out, code)
	judged(t, out)
	if !strings.Contains(out, "leaderships") || !strings.Contains(out, " kill") {
		t.Errorf("the output does not state what was done:\n%s", out)
	}
	if strings.Contains(out, "compared 0 times") {
		t.Errorf("the stores were never compared while the nodes served:\n%s", out)
	}
}

// TestPowerLossOfNodesTakesNothing cuts the power of all nodes at once.
func TestPowerLossOfNodesTakesNothing(t *testing.T) {
	testkit.AtLength(t)
	bin := built(t, "fila-fault", ".", "-tags", "fault")
	cuts := regexp.MustCompile(`[1-9]\d* cuts took (\d+) bytes of stores and tore (\d+) files, took (\d+) bytes of replicated logs and tore (\d+) files`)
	// Little of a log is unsynced at any time, so all cuts of a run may by chance find none.
	for range 3 {
		out, code := torture(t, bin, nil, "-nodes", "3", "-by", "power", "-scatter", "-t", "5m", "-n", "10", "-calm", "300ms")
		wantKept(t, out, code)
		m := cuts.FindStringSubmatch(out)
		if len(m) != 5 || m[1]+m[2] == "00" {
			t.Fatalf("the power cuts took nothing:\n%s", out)
		}
		if m[3]+m[4] != "00" {
			return
		}
	}
	t.Error("no power cut took anything of a replicated log")
}

func wantKept(t *testing.T, out string, code int) {
	t.Helper()
	if code != 0 || !strings.Contains(out, "verdict: every promise was kept") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	if crashes(t, out) < 2 {
		t.Errorf("too little activity:\n%s", out)
	}
	t.Log(out)
}

// plantedTries is how often a short torture may pass over a planted fault: a vote that is forgotten does
// harm only if a power cut comes between two elections.
const plantedTries = 6

// TestTortureFindsPlantedFaults tests the test: brokers built to break a promise are found.
func TestTortureFindsPlantedFaults(t *testing.T) {
	testkit.AtLength(t)
	bin := built(t, "fila-fault", ".", "-tags", "fault")
	for fault, x := range map[string]struct {
		rule string // "": any, since the lost record may be an enqueue or an ack
		args []string
	}{
		"reply-before-commit": {"", nil},
		"unsynced-reply":      {"an acknowledged message is delivered until it is acked", []string{"-by", "power"}},
		"dropped-ack":         {"an acked message is not delivered again", nil},
		"unfenced-receipt":    {"a receipt changes nothing after its lease", nil},
		"lost-timer":          {"a stored message can be leased", nil},
		"lost-lease":          {"a message has one live lease", nil},
		"half-publish":        {"an acknowledged message is delivered until it is acked", nil},
		"lost-result":         {"the answer to FILA.RESULT is what has become of the message", nil},
		"unordered":           {"an ordered queue delivers a key in order, one message at a time", nil},
		"unsynced-log":        {"", []string{"-nodes", "3", "-by", "power", "-t", "3s", "-calm", "700ms"}},
		"forgotten-vote":      {"", []string{"-nodes", "3", "-by", "power", "-t", "3s", "-calm", "700ms"}},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var out string
			var code int
			for try := 0; !strings.Contains(out, "BROKEN "+x.rule) && try < plantedTries; try++ {
				out, code = torture(t, bin, []string{"PLANTED_FAULT=" + fault}, append([]string{"-t", "6s", "-calm", "1s"}, x.args...)...)
			}
			if code != 1 || !strings.Contains(out, "BROKEN "+x.rule) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", code, x.rule, out)
			}
		})
	}
}

// TestNoFaultIsInTheBroker verifies that the regular binary contains none of the faults.
func TestNoFaultIsInTheBroker(t *testing.T) {
	text, err := os.ReadFile(kit.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PLANTED" + "_FAULT", "reply-before" + "-commit"} {
		if bytes.Contains(text, []byte(name)) {
			t.Error(fmt.Sprint(name, " is in it"))
		}
	}
}
