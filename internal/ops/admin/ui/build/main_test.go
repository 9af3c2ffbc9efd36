package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// committed returns the files below dist, by their paths.
func committed(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := filepath.Join("..", "dist")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestTheFilesAreWhatTheSourcesGive(t *testing.T) {
	want, err := build("..")
	if err != nil {
		t.Fatal(err)
	}
	got := committed(t)
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Fatalf("dist has %q, the sources give %q: make ui", g, w)
	}
	for name, text := range want {
		if !bytes.Equal(got[name], text) {
			t.Errorf("dist/%s is not what the sources give: make ui", name)
		}
	}
}

// compressedMax is how large all that the first page needs may be, compressed.
const compressedMax = 120 << 10

func TestTheFilesAreSmall(t *testing.T) {
	sum := 0
	for name, text := range committed(t) {
		if strings.HasSuffix(name, ".gz") {
			sum += len(text)
		}
	}
	if sum == 0 || sum > compressedMax {
		t.Errorf("%d bytes compressed, want at most %d", sum, compressedMax)
	}
}

// The policy refuses text that becomes markup, so nothing may need it.
func TestTheScriptMakesNoMarkupOfText(t *testing.T) {
	scripts := 0
	for name, text := range committed(t) {
		if !strings.HasSuffix(name, ".js") {
			continue
		}
		scripts++
		for _, sink := range []string{".outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "http://", "https://"} {
			for rest := text; ; {
				at := bytes.Index(rest, []byte(sink))
				if at < 0 {
					break
				}
				// The names of XML's vocabularies are no addresses that anything asks for.
				if !bytes.HasPrefix(rest[at:], []byte("http://www.w3.org/")) && !bytes.HasPrefix(rest[at:], []byte("https://github.com/leeoniya/uPlot")) {
					t.Errorf("%s has %s: %.80q", name, sink, rest[at:])
				}
				rest = rest[at+len(sink):]
			}
		}
	}
	if scripts == 0 {
		t.Error("there is no script")
	}
}

// Releases name the libraries that they contain by the notice, which has their licences.
func TestTheNoticeNamesWhatTheDashboardContains(t *testing.T) {
	want, err := notices("..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "NOTICE.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("NOTICE.txt is not what package-lock.json and the packages give: make ui")
	}
	all, err := libraries("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if !strings.Contains(strings.ToLower(notice), l.Name) || !strings.Contains(notice, l.License) {
			t.Errorf("the head of what browsers get does not name %s, %s", l.Name, l.License)
		}
	}
	if len(all) == 0 {
		t.Error("there are no libraries")
	}
}
