package cli

import (
	"bytes"
	"testing"
)

// An operator has nothing but these lines to decide what to do with a damaged store.
func TestReportsSayAllThatWasFound(t *testing.T) {
	found := CheckReport{
		Path: "data", Files: 2, Bytes: 300, Records: map[string]int64{"messages": 4, "leases": 1},
		Queues:  []CheckedQueue{{Name: "mail", Messages: 3, Leased: 1, Delayed: 1, Retried: 2}},
		Replica: &CheckedReplica{Cluster: "c1", Entry: 7}, Digest: "abc", Notes: []string{"a note"},
	}
	found.Add(Problem{File: "000012.sst", Family: "messages", Key: "01", Last: "02", What: "a checksum differs"})
	found.Count++ // one more than it lists
	repaired := RepairReport{Path: "data", Kept: "data-damaged", Records: 5, MayReturn: 6, Before: found, After: CheckReport{Path: "data"}}
	repaired.Note("a table was left out")
	repaired.Count++
	const check = `data: 2 table files, 300 bytes, 5 records
queue   messages  leased  delayed  retried
"mail"  3         1       1        2
a node of cluster c1, at entry 7 of the replicated log
digest abc
note: a note
damaged: 000012.sst family messages key 01 to 02: a checksum differs
and 1 more problems
`
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check", "data"}, 1, check},
		{[]string{"repair", "data"}, 0, check + `repair: a table was left out
repair: and 1 more
repair: up to 6 messages that were acked, cancelled or purged may come back: the records of that are lost
repair: 5 records are saved; the damaged store is kept as data-damaged
data: 0 table files, 0 bytes, 0 records
everything is in order
`},
		{[]string{"restore", "data", "new"}, 1, check},
	} {
		var said, complaint bytes.Buffer
		program := Program{
			Check:   func(string, Progress) (CheckReport, error) { return found, nil },
			Repair:  func(string, Progress) (RepairReport, error) { return repaired, nil },
			Restore: func(string, string, Progress) (CheckReport, error) { return found, nil },
		}
		if code := Main(t.Context(), program, Process{Args: c.args, Stdout: &said, Stderr: &complaint}); code != c.code || said.String() != c.want {
			t.Errorf("%v: exit code %d, want %d: %s%s", c.args, code, c.code, said.String(), complaint.String())
		}
	}
}
