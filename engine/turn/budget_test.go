package turn

import "testing"

// work does units one by one while there is room, each of which adds a record, and returns how many it has done.
func work(b *Budget, open *Batch, bytes int) (n int) {
	for ; b.Room(*open); n++ {
		b.Spend(1)
		open.Records++
		open.Bytes += bytes
	}
	return n
}

func TestStepsHaveTheirParts(t *testing.T) {
	b := Budget{Turn: 64}
	var open Batch
	b.Slice(b.Part(4), open)
	slice := work(&b, &open, 1)
	b.Tasks(1<<20, open)
	tasks := work(&b, &open, 1)
	b.AtLeast(b.Part(8))
	serve := work(&b, &open, 1)
	if slice != 16 || tasks != 32 || serve != 8 || b.Spent != 56 {
		t.Errorf("steps have done %d, %d and %d units, of %d", slice, tasks, serve, b.Spent)
	}
	if small := (&Budget{Turn: 2}); small.Part(32) != 1 || small.Share() != 1 {
		t.Errorf("parts of a small turn are %d and %d units", small.Part(32), small.Share())
	}
}

func TestSlicesAddABoundedWeightToABatch(t *testing.T) {
	b := Budget{Turn: 1 << 20}
	var open Batch
	const bytes = 800 // 1,000 with its record
	slices, tasks := 0, 0
	for range 3 {
		b.Slice(100, open)
		slices += work(&b, &open, bytes)
		b.Tasks(open.Bytes+10*bytes, open)
		tasks += work(&b, &open, bytes)
	}
	if most := SliceWeight/1000 + 1; slices != most || tasks != 30 || !b.Sliced() {
		t.Errorf("slices have added %d records, want %d; tasks %d, want 30", slices, most, tasks)
	}
	b.Cut()
	open = Batch{}
	if b.Slice(100, open); work(&b, &open, bytes) != 100 || b.Sliced() {
		t.Error("the next batch has the weight of the one before")
	}
}

func TestATaskStepEndsWithAFullBatch(t *testing.T) {
	b := Budget{Turn: 64}
	open := Batch{Bytes: 99}
	if b.Tasks(100, open); !b.Room(open) || b.Full(open) {
		t.Error("there is room for a byte")
	}
	if open.Bytes++; b.Room(open) || !b.Full(open) {
		t.Error("there is room in a full batch")
	}
}

func TestAnAllowanceCountsCallsThatLook(t *testing.T) {
	b := Budget{Turn: 10}
	a := b.Allow(2)
	a.Begin(&b)
	b.Spend(100) // what its arguments name
	a.End(&b)
	a.Begin(&b)
	if !a.Afford(12, &b) || a.Afford(13, &b) {
		t.Error("a transaction of two calls has twelve units")
	}
	b.Spend(8)
	a.End(&b)
	a.Begin(&b)
	if !a.Afford(4, &b) || a.Afford(5, &b) {
		t.Error("four units are left after eight")
	}
}
