//go:build cgo

package rocks_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/internal/testkit/smalldisk"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// Some of what is tested here happens to a process: being killed, being
// locked out, not being root. The test binary starts itself for that; these
// variables tell the child what it is to do.
const (
	childTask = "FILA_ROCKS_TEST_CHILD"
	childDir  = "FILA_ROCKS_TEST_DIR"
	testAlone = "test"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	switch task := os.Getenv(childTask); task {
	case "", testAlone:
		os.Exit(m.Run())
	case "open":
		s, err := rocks.Open(rocks.Options{Path: dir})
		if err == nil {
			err = s.Close()
		}
		fmt.Println(err)
	case "write":
		fmt.Println(writeForEver(dir))
	case "fill":
		fmt.Println(fillAndReopen(dir))
		select {} // until it is killed
	default:
		fmt.Println("no such task:", task)
	}
}

// fillAndReopen writes until the disk is full, takes what is left of it, and returns why the store is not
// opened again.
func fillAndReopen(dir string) error {
	s, err := rocks.Open(rocks.Options{Path: dir, ReserveBytes: reserved})
	if err != nil {
		return err
	}
	var b storage.Batch
	for n := 0; err == nil; n++ {
		b.Reset()
		b.Put(storage.Messages, storage.MessageKey{Queue: 1, Key: "k", ID: storage.ID{1, byte(n >> 8), byte(n)}}.Append(nil), make([]byte, 50_000))
		err = s.Commit(&b, true)
	}
	for err = nil; err == nil; { // each time it gives up something that it had kept
		if err := smalldisk.Fill(filepath.Dir(dir)); err != nil {
			return err
		}
		if err = s.Reopen(); err == nil {
			err = s.Commit(&b, true)
		}
	}
	return err
}

const keysPerBatch = 16

// writeForEver commits batches that write one number under several keys, and
// prints the number when its commit returned. It goes on from what it finds.
func writeForEver(dir string) error {
	s, err := rocks.Open(rocks.Options{Path: dir})
	if err != nil {
		return err
	}
	n, err := lastNumber(s)
	if err != nil {
		return err
	}
	var b storage.Batch
	for n++; ; n++ {
		b.Reset()
		for k := range keysPerBatch {
			b.Put(storage.Messages, fmt.Appendf(nil, "%02d", k), fmt.Appendf(nil, "%d", n))
			b.Put(storage.Leases, fmt.Appendf(nil, "%09d-%02d", n, k), make([]byte, 512))
		}
		if err := s.Commit(&b, true); err != nil {
			return err
		}
		if _, err := fmt.Println(n); err != nil {
			return err
		}
	}
}

// lastNumber returns the number under all keys, or an error if there are two.
func lastNumber(s *rocks.Store) (int, error) {
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	value, keys := "", 0
	for it.Next() {
		if keys > 0 && string(it.Value()) != value {
			return 0, fmt.Errorf("half a batch: %s is %s, but before it is %s", it.Key(), it.Value(), value)
		}
		value = string(it.Value())
		keys++
	}
	if err := it.Err(); err != nil || keys == 0 {
		return 0, err
	}
	if keys != keysPerBatch {
		return 0, fmt.Errorf("half a batch: %d keys", keys)
	}
	return strconv.Atoi(value)
}

func child(ctx context.Context, t *testing.T, task, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), childTask+"="+task, childDir+"="+dir)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	return cmd
}

// runChild returns what the child printed.
func runChild(t *testing.T, task, dir string) string {
	t.Helper()
	out, err := child(t.Context(), t, task, dir).Output()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	return string(out)
}

// runChildAsNobody is runChild without the powers of root.
func runChildAsNobody(t *testing.T, task, dir string) string {
	t.Helper()
	cmd := child(t.Context(), t, task, dir)
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	return string(out)
}

// alone runs the test in a process of its own, and returns true there and false elsewhere. A limit on
// files is for a process, and go test has the test binary write a file of the names that it opens.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childTask) == testAlone {
		return true
	}
	cmd := child(t.Context(), t, testAlone, "")
	cmd.Args = append(cmd.Args, "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Stderr = nil
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v:\n%s", err, out)
	}
	return false
}

func TestAKilledProcessLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for round := range 6 {
		cmd := child(t.Context(), t, "write", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The pipe lets the child run ahead, so the kill meets it anywhere in a commit.
		acked := bufio.NewReader(out)
		var line string
		for range 50 + 150*round {
			if line, err = acked.ReadString('\n'); err != nil {
				t.Fatalf("the child ended: %v", err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(acked) // also what the reader has ahead
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		output := line + string(rest)
		lines := strings.Fields(output[:strings.LastIndexByte(output, '\n')]) // the kill may have cut a line
		last, err := strconv.Atoi(lines[len(lines)-1])
		if err != nil {
			t.Fatal(err)
		}
		s, err := rocks.Open(rocks.Options{Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		got, err := lastNumber(s)
		if err != nil || got < last || got > last+1 {
			t.Errorf("round %d: batch %d was acknowledged, %d is there, %v", round, last, got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
