package queueset_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/queueset"
)

func TestTheTableIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for s, row := range queueset.All() {
		if row.Name == "" || row.Token == "" || row.Unit == "" || row.Record == 0 || strings.Count(row.Doc, "`") != 2 {
			t.Errorf("setting %d: %+v lacks a column", s, row)
		}
		if row.Min < 0 || row.Max <= row.Min || row.Default > uint64(row.Max) {
			t.Errorf("%s: from %d to %d, by default %d", row.Name, row.Min, row.Max, row.Default)
		}
		for _, once := range []string{row.Name, row.Token, fmt.Sprint(row.Record)} {
			if seen[once] {
				t.Errorf("%s: %s is there twice", row.Name, once)
			}
			seen[once] = true
		}
	}
}

// The two documents that list the settings are written by hand.
func TestTheDocumentsListEverySetting(t *testing.T) {
	proto, docs := read(t, "../../storage/fila.proto"), read(t, "../../docs/how-to/queues.md")
	for _, row := range queueset.All() {
		name := strings.TrimSuffix(row.Name, "_percent")
		if !regexp.MustCompile(fmt.Sprintf(` %s = %d;`, name, row.Record)).MatchString(proto) {
			t.Errorf("storage/fila.proto has no field %s = %d", name, row.Record)
		}
		if !strings.Contains(docs, "`"+row.Name+"`") {
			t.Errorf("docs/how-to/queues.md does not name %s", row.Name)
		}
	}
}

func TestARecordWithoutASettingHasItsDefault(t *testing.T) {
	rows := queueset.Rows()
	row := &rows[queueset.ResultTTL]
	for _, v := range []uint64{0, 1, row.Default, uint64(row.Max)} {
		if n := row.ToRecord(v); row.FromRecord(n) != v || (n == 0) != (v == row.Default) {
			t.Errorf("%d is %d in the record, and that is %d", v, n, row.FromRecord(n))
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestADeadLetterQueueInheritsWhatTheTableSays(t *testing.T) {
	var parent queueset.Values
	for s := range parent {
		parent[s] = uint64(s) + 1
	}
	dead := parent.Inherited()
	for s, row := range queueset.All() {
		want := uint64(0)
		if row.Inherited {
			want = parent[s]
		}
		if dead[s] != want {
			t.Errorf("%s: %d, want %d", row.Name, dead[s], want)
		}
	}
	if dead[queueset.Visibility] == 0 || dead[queueset.TTL] != 0 {
		t.Errorf("a dead-letter queue has %v", dead)
	}
}
