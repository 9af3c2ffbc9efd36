package proc

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

func needsProc(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system has no /proc, and nothing here is used on it")
	}
}

func TestAProcessUsesMemoryAndTime(t *testing.T) {
	needsProc(t)
	before, err := UseOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testkit.Patience()); time.Now().Before(end); { // it has to be busy
		u, err := UseOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if u.Resident <= 0 || u.Peak < u.Resident/2 || u.Anon > u.Resident {
			t.Fatalf("it uses %+v", u)
		}
		if u.CPU > before.CPU {
			return
		}
	}
	t.Error("no time passes in a busy loop")
}

// A server that is idle most of the time uses less in a second than a tick of the kernel's statistics.
func TestLessThanATickOfTimeIsSeen(t *testing.T) {
	needsProc(t)
	before, err := UseOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testkit.Patience()); time.Now().Before(end); { // it has to be busy
		u, err := UseOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if took := u.CPU - before.CPU; took > 0 && took < 10*time.Millisecond {
			return
		}
		before = u
	}
	t.Error("each change was of 10 ms or more")
}

func TestATreeHasTheChildrenOfChildren(t *testing.T) {
	needsProc(t)
	cmd := exec.Command("sh", "-c", "sh -c 'read x; exit 0' & echo; read x; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	below := descendants(os.Getpid())
	if len(below) < 1 || below[0] != cmd.Process.Pid && len(below) < 2 {
		t.Errorf("descendants are %v, the child is %d", below, cmd.Process.Pid)
	}
	one, err := UseOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if all, err := TreeOf(os.Getpid()); err != nil || all.Peak <= one.Peak {
		t.Errorf("with its children %+v, alone %+v, %v", all, one, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Log(err) // read exits with 1 at the end of its input
	}
}
