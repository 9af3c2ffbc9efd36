package progress

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// Without a terminal each tenth of the work is a line, once, whatever the steps are.
func TestEachTenthIsALine(t *testing.T) {
	for name, x := range map[string]struct {
		total int64
		set   []int64
		want  []string
	}{
		"small steps":    {20, []int64{1, 2, 3, 3, 4, 5}, []string{"(10 %)", "(20 %)"}},
		"a large step":   {100, []int64{35, 36, 100, 100}, []string{"(30 %)", "(100 %)"}},
		"beyond the end": {10, []int64{15, 20}, []string{"(100 %)"}},
		"nothing to do":  {0, []int64{0, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			b := New(f, "copied", x.total)
			for _, n := range x.set {
				b.Set(n)
			}
			b.Done()
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			if got := regexp.MustCompile(`\(\d+ %\)`).FindAllString(string(text), -1); !slices.Equal(got, x.want) {
				t.Errorf("got %q, want %q:\n%s", got, x.want, text)
			}
		})
	}
}
