// Package systems tests that Fila can be built on systems other than the developers'.
package systems

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machine is the environment that tools/env finds.
type machine struct {
	goVersion   string // empty: Go is missing
	toolchain   string // GOTOOLCHAIN
	rocks       string // version of the headers; empty: missing
	flags       string // GOFLAGS
	noCgo       bool
	noTypeInfos bool // in the library
}

const wantGo = `have=$GO_VERSION
case "$1 $2" in
"version ") echo "go version go$have linux/amd64" ;;
"env GOTOOLCHAIN") echo "$TOOLCHAIN" ;;
"env CGO_ENABLED") printf '%s\n' "$CGO" c++-of-the-test "" "" "$FLAGS" "" ;;
*) echo "go $* with GOFLAGS=$GOFLAGS CXX=$CGO_CXXFLAGS LD=$CGO_LDFLAGS" ;;
esac
`

const compiler = `for arg; do case $arg in -print-file-name=*) echo "$LIBRARY"; exit ;; esac; done
cat >/dev/null # as a compiler reads it: else what writes it may be killed by SIGPIPE
[ -n "$ROCKS" ] || exit 1
echo "$ROCKS" | sed 's/\./ . /'
`

// env runs tools/env in such an environment, in a copy of the files it reads.
func (m machine) env(t *testing.T, args ...string) (out string, ok bool) {
	t.Helper()
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	for _, dir := range []string{bin, filepath.Join(root, "tools")} {
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum", "tools/env", "tools/bindings"} {
		b, err := os.ReadFile("../../" + file) //nolint:gosec // within the tree
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, file), string(b))
	}
	library := filepath.Join(root, "librocksdb.so")
	write(t, library, "")
	write(t, filepath.Join(bin, "c++-of-the-test"), "#!/bin/bash\n"+compiler)
	types := "0 D _ZTIN7rocksdb6LoggerE"
	if m.noTypeInfos {
		types = "0 T rocksdb_open"
	}
	write(t, filepath.Join(bin, "nm"), "#!/bin/bash\necho '"+types+"'\n")
	if m.goVersion != "" {
		write(t, filepath.Join(bin, "go"), "#!/bin/bash\n"+wantGo)
	}
	for _, tool := range []string{"bash", "sed", "sort", "head", "tail", "tr", "grep", "cat", "cmp", "mv", "rm", "mkdir", "dirname", "paste"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	cgo := "1"
	if m.noCgo {
		cgo = "0"
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), append([]string{root + "/tools/env"}, args...)...) //nolint:gosec // created above
	cmd.Env = []string{
		"PATH=" + bin, "GO_VERSION=" + m.goVersion, "TOOLCHAIN=" + m.toolchain, "CGO=" + cgo, "FLAGS=" + m.flags,
		"ROCKS=" + m.rocks, "LIBRARY=" + library,
	}
	b, err := cmd.CombinedOutput()
	return strings.ReplaceAll(string(b), root, "ROOT"), err == nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // some are executed
		t.Fatal(err)
	}
}

func TestWhatCannotBuildFilaIsNamedInOneLine(t *testing.T) {
	for _, c := range []struct {
		is   machine
		want string
	}{
		{machine{}, "Go is missing"},
		{machine{goVersion: "1.19.8", toolchain: "auto", rocks: "7.8"}, "Go 1.19.8 is too old"},
		{machine{goVersion: "1.20", rocks: "7.8"}, "Go 1.20 is too old"},
		{machine{goVersion: "1.24.4", toolchain: "local", rocks: "7.8"}, "set GOTOOLCHAIN=auto"},
		{machine{goVersion: "1.26.0", toolchain: "local"}, "the headers of RocksDB are missing"},
		{machine{goVersion: "1.26.0", rocks: "5.17"}, "RocksDB 5.17: there is no binding"},
		{machine{goVersion: "1.26.0", rocks: "6.20"}, "RocksDB 6.20: there is no binding"},
		{machine{goVersion: "1.26.0", rocks: "7.7"}, "RocksDB 7.7: there is no binding"},
		{machine{goVersion: "1.26.0", rocks: "8.0"}, "7.8 to 7.10, 8.1 to 8.4"},
	} {
		out, ok := c.is.env(t, "go", "build")
		if ok || !strings.Contains(out, c.want) || !strings.HasPrefix(out, "fila: ") || strings.Count(out, "\n") != 1 {
			t.Errorf("%+v: %q", c.is, out)
		}
	}
}

func TestTheHeaderChoosesTheBinding(t *testing.T) {
	for rocks, binding := range map[string]string{
		"6.11": "v1.6.20", "6.16": "v1.6.20", "7.8": "", "7.10": "", "8.4": "v1.8.0", "8.9": "v1.8.4", "8.11": "v1.8.4",
		"9.10": "v1.9.2", "9.11": "v1.9.9", "10.1": "v1.9.9", "10.10": "v1.10.1", "11.8": "v1.11.1", "12.0": "v1.11.1",
	} {
		out, ok := machine{goVersion: "1.24.4", toolchain: "auto", rocks: rocks, flags: "-buildvcs=false"}.env(t, "go", "build")
		want := "go build with GOFLAGS= CXX= "
		if binding != "" {
			want = "go build with GOFLAGS=-buildvcs=false '-modfile=ROOT/.cache/bindings/" + binding + ".mod' CXX= "
		}
		if !ok || !strings.HasPrefix(out, want) {
			t.Errorf("RocksDB %s: %q, want %q", rocks, out, want)
		}
	}
}

func TestWhatWasChosenAlreadyIsKept(t *testing.T) {
	const chosen = "-modfile=mine.mod"
	out, ok := machine{goVersion: "1.26.0", rocks: "9.10", flags: chosen}.env(t, "go", "build")
	if !ok || strings.Contains(out, "bindings") {
		t.Errorf("with %s: %q", chosen, out)
	}
	out, ok = machine{goVersion: "1.26.0", noCgo: true}.env(t, "go", "build")
	if !ok || strings.Contains(out, "bindings") {
		t.Errorf("without cgo, and without RocksDB: %q", out)
	}
}

func TestALibraryWithoutTypesAtRunTimeIsSuited(t *testing.T) {
	for _, lacks := range []bool{false, true} {
		out, ok := machine{goVersion: "1.26.0", rocks: "7.8", noTypeInfos: lacks}.env(t, "go", "build")
		if !ok || strings.Contains(out, "-fno-rtti") != lacks {
			t.Errorf("lacks them %t: %q", lacks, out)
		}
	}
	// This version of the binding includes its own RocksDB.
	if out, ok := (machine{goVersion: "1.26.0", rocks: "6.11"}).env(t, "go", "build"); !ok || !strings.Contains(out, "LD=-LROOT ") {
		t.Errorf("RocksDB 6.11: %q", out)
	}
}

// tools/bindings is read in order and includes the version in go.mod.
func TestTheBindingsAreInOrder(t *testing.T) {
	b, err := os.ReadFile("../../tools/bindings")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	def := regexp.MustCompile(`linxGnu/grocksdb (v\S+)`).FindStringSubmatch(string(mod))[1]
	var last []string
	defaults := 0
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if f[2] == "go.mod" {
			defaults++
		} else if len(f) != 5 || f[2] == def {
			t.Errorf("%q: want from, to, version and two sums, and another version than that of go.mod", line)
		}
		order := []string{f[0]}
		if last != nil {
			order = slices.Insert(order, 0, last[1])
		}
		if f[1] != "newer" {
			order = append(order, f[1])
		}
		for i := range order[1:] {
			if !older(order[i], order[i+1]) {
				t.Errorf("%q: %s is not older than %s", line, order[i], order[i+1])
			}
		}
		last = f
	}
	if defaults != 1 || last[1] != "newer" {
		t.Errorf("%d lines are go.mod's, the last one ends with %s", defaults, last[1])
	}
}

// older compares two-part versions.
func older(a, b string) bool {
	pad := func(v string) string {
		major, minor, _ := strings.Cut(v, ".")
		return strings.Repeat("0", 4-len(major)) + major + strings.Repeat("0", 4-len(minor)) + minor
	}
	return pad(a) < pad(b)
}
