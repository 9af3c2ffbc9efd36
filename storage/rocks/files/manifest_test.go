package files

import "testing"

// RocksDB 6 notes nowhere which logs it keeps: what an empty family has the number of may
// be gone.
func TestLogsThatOnlyEmptyFamiliesNameAreNotMissed(t *testing.T) {
	tables := map[uint64]*Table{9: {Number: 9}}
	for _, c := range []struct {
		m    Manifest
		kept uint64
	}{
		{Manifest{Families: map[uint32]*Family{0: {Log: 3}, 1: {Log: 8}}}, 3},                 // nothing was flushed yet
		{Manifest{Families: map[uint32]*Family{0: {Log: 3}, 1: {Log: 8, Tables: tables}}}, 8}, // RocksDB 6
		{Manifest{Families: map[uint32]*Family{0: {Log: 3}, 1: {Log: 8}}, Removed: map[uint64]bool{9: true}}, 8},
		{Manifest{Families: map[uint32]*Family{0: {Log: 3}, 1: {Log: 8, Tables: tables}}, MinLog: 5}, 5}, // it says so
	} {
		if got := c.m.OldestKept(); got != c.kept {
			t.Errorf("%+v: from %d on, want %d", c.m, got, c.kept)
		}
	}
}
