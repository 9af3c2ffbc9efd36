package powerloss

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A C program performs the same calls as RocksDB, with and without syncs: synced data always
// survives a cut, and unsynced data is sometimes lost.
func TestWhatWasSyncedIsKept(t *testing.T) {
	d, bin := prepare(t)
	data := d.data
	seen := map[string]int{}
	for seed := range uint64(60) {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(data, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "old"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Begin(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), bin, data)
		cmd.Env = append(os.Environ(), d.Env()...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		before := contents(t, data)
		loss, err := d.Cut(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		got := contents(t, data)
		if _, there := got["new"]; !there && loss.Bytes < int64(len(before["new"])) {
			t.Errorf("seed %d: a file of %d bytes is gone, %+v does not count them", seed, len(before["new"]), loss)
		}
		if got["log"][:min(6, len(got["log"]))] != "synced" {
			t.Errorf("seed %d: what was synced is gone: %q", seed, got)
		}
		if log := got["1.log"]; len(log) != 4096 || !strings.HasPrefix(log, strings.Repeat("s", 700)) {
			t.Errorf("seed %d: of a log that was a spare %d bytes are there, without what was synced: %q", seed, len(log), log[:min(700, len(log))])
		} else {
			half := ""
			for _, at := range []int{700, 1024, 1536, 2048, 2499} { // what was not synced, in each sector
				half += map[bool]string{true: "+", false: "-"}[log[at] == 'n']
			}
			if strings.Trim(log[2500:], "\x00") != "" || (half[0] == '+') != (log[1023] == 'n') {
				t.Errorf("seed %d: %q is left of a log that was a spare", seed, log)
			}
			seen["spare "+half]++
		}
		if log := got["2.log"]; len(log) != 4096 && len(log) != 8192 || !strings.HasPrefix(log, strings.Repeat("s", 700)) || strings.Trim(log[700:], "n\x00") != "" {
			t.Errorf("seed %d: of a log with a hole at its end %d bytes are there: %q", seed, len(log), log)
		} else {
			seen[fmt.Sprintf("hole %d %t", len(log), strings.Contains(log, "\x00n"))]++
		}
		if got["current"] != "two" && got["current"] != "one" {
			t.Errorf("seed %d: a rename left neither the old nor the new: %q", seed, got)
		}
		seen["log "+got["log"]]++
		seen["current "+got["current"]]++
		for _, name := range []string{"old", "new"} {
			if _, there := got[name]; there {
				seen[name+" there"]++
			} else {
				seen[name+" gone"]++
			}
		}
	}
	for _, want := range []string{"log synced", "log synced and not", "current one", "current two", "old there", "old gone", "new there", "new gone", "spare -----", "spare +++++", "hole 4096 false", "hole 8192 false", "hole 8192 true"} {
		if seen[want] == 0 {
			t.Errorf("%q never happened: %v", want, seen)
		}
	}
	holes := 0
	for what := range seen {
		if kept, spare := strings.CutPrefix(what, "spare "); spare && strings.Contains(kept, "-+") {
			holes++
		}
	}
	if holes == 0 {
		t.Errorf("nothing was kept behind what was lost of a log that was a spare: %v", seen)
	}
	torn := 0
	for what, n := range seen {
		if strings.HasPrefix(what, "log synced ") && what != "log synced and not" {
			torn += n
		}
	}
	if torn == 0 {
		t.Errorf("no log was torn: %v", seen)
	}
}

func TestAnotherDirectoryIsNoticed(t *testing.T) {
	d := &Disk{data: filepath.Join(t.TempDir(), "data")}
	d.journal, d.grave = d.data+"-journal", d.data+"-grave"
	wants := func(want bool) {
		t.Helper()
		if got, err := d.Replaced(); got != want || err != nil {
			t.Errorf("another directory: %v, %v, want %v", got, err, want)
		}
	}
	begin := func() {
		t.Helper()
		if err := d.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	mkdir := func(path string) {
		t.Helper()
		if err := os.Mkdir(path, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	mkdir(d.data)
	wants(false) // the process has made it
	begin()
	wants(false)
	mkdir(d.data + "-other")
	if err := os.RemoveAll(d.data); err != nil {
		t.Fatal(err)
	}
	wants(true)
	if err := os.Rename(d.data+"-other", d.data); err != nil {
		t.Fatal(err)
	}
	wants(true)
	begin()
	wants(false)
}

// prepare builds the writer and its disk.
func prepare(t *testing.T) (d *Disk, bin string) {
	t.Helper()
	work := t.TempDir()
	source, bin := filepath.Join(work, "writer.c"), filepath.Join(work, "writer")
	if err := os.WriteFile(source, []byte(writer), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-o", bin, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d, err := New(work, filepath.Join(work, "data"))
	if err != nil {
		t.Fatal(err)
	}
	return d, bin
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// The disk is full or failing until it is healed.
func TestFaultsToOrder(t *testing.T) {
	d, bin := prepare(t)
	data := d.data
	for name, x := range map[string]struct {
		set  func() error
		want string
	}{"full": {d.Fill, "No space left"}, "broken": {d.Break, "Input/output error"}, "healed": {d.Heal, ""}} {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(data, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := d.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := x.set(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), bin, data)
		cmd.Env = append(os.Environ(), d.Env()...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (x.want == "") || !strings.Contains(string(out), x.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// A truncated line is ignored; any other malformed line is an error.
func TestTheJournalIsReadAsItIs(t *testing.T) {
	j := newJournal(map[string]uint64{"a": 1}, map[uint64]int64{1: 10})
	if err := j.read("C 2 b\nF 1 2 7\nD 2\nS 1\nR 2 b c\nS 2\nU 1 a\nO 1 4 10\nF 3 1 99\nS"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(j.durable, j.sizes); got != "map[a:1 b:2] map[1:4 2:7]" {
		t.Errorf("durable is %s", got)
	}
	// A spare has to be synced before it becomes a log, and is written from its beginning then.
	j = newJournal(map[string]uint64{}, map[uint64]int64{})
	if err := j.read("C 2 s\nF 1 2 100\nS 1\nR 2 s 1.log\nP 2 100\nF 2 2 30\nS 2\nO 2 60 100\n"); err != nil || j.sizes[2] != 30 || j.over[2] != 100 {
		t.Errorf("of a spare %d bytes are synced, and %d are zeros: %v", j.sizes[2], j.over[2], err)
	}
	if err := j.read("R 2 1.log s\nO 2 0 100\nR 2 s 2.log\nP 2 100\n"); err == nil {
		t.Error("a log may be made of a former one before zeros are synced")
	}
	// A log that got a hole at its end is written over zeros, and keeps what was synced.
	j = newJournal(map[string]uint64{}, map[uint64]int64{})
	if err := j.read("C 2 1.log\nL 2 0 100\nF 1 2 70\nS 1\nL 2 100 200\n"); err != nil || j.sizes[2] != 70 || j.over[2] != 100 {
		t.Errorf("of a log %d bytes are synced, and it had a length of %d: %v", j.sizes[2], j.over[2], err)
	}
	for _, bad := range []string{"X 1\n", "\n", "F 1\n", "P 1\n", "P 1 1\n", "L 1 1\n"} {
		if err := newJournal(map[string]uint64{}, map[uint64]int64{}).read(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

const writer = `
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void ok(int yes, const char *what) { if (!yes) { perror(what); exit(1); } }
static int put(const char *name, const char *text) {
	int fd = open(name, O_CREAT | O_WRONLY, 0600);
	ok(fd >= 0, name);
	ok(write(fd, text, strlen(text)) == (ssize_t)strlen(text), name);
	return fd;
}
int main(int argc, char **argv) {
	char path[7][4096];
	const char *names[] = {"log", "tmp", "current", "new", "fila-spare-1", "1.log", "2.log"};
	static char text[4096];
	(void)argc;
	for (int i = 0; i < 7; i++) snprintf(path[i], sizeof path[i], "%s/%s", argv[1], names[i]);
	int log = put(path[0], "synced");
	ok(fdatasync(log) == 0, "fdatasync");
	int spare = open(path[4], O_CREAT | O_WRONLY, 0600);
	ok(pwrite(spare, text, 4096, 0) == 4096 && fdatasync(spare) == 0 && rename(path[4], path[5]) == 0, "spare");
	memset(text, 's', 700);
	ok(write(spare, text, 700) == 700 && fdatasync(spare) == 0, "spare");
	int hole = open(path[6], O_CREAT | O_WRONLY, 0600);
	ok(hole >= 0 && truncate(path[6], 4096) == 0 && write(hole, text, 700) == 700 && fdatasync(hole) == 0, "hole");
	memset(text, 'n', 1800);
	ok(write(spare, text, 1800) == 1800, "spare");
	ok(write(hole, text, 1800) == 1800 && truncate(path[6], 8192) == 0, "hole");
	int one = put(path[2], "one"), dir = open(argv[1], O_RDONLY | O_DIRECTORY);
	ok(fsync(one) == 0 && fsync(dir) == 0, "fsync");
	ok(write(log, " and not", 8) == 8, "log");
	ok(fsync(put(path[1], "two")) == 0 && rename(path[1], path[2]) == 0, "rename");
	put(path[3], "new");
	snprintf(path[3], sizeof path[3], "%s/old", argv[1]);
	unlink(path[3]);
	return 0;
}
`
