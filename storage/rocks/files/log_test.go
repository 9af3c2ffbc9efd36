package files

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written is a file of records, as RocksDB writes it, and where each begins.
func written(records ...string) (data []byte, offsets []int64) {
	for _, r := range records {
		rest, first := []byte(r), true
		for {
			left := logBlock - len(data)%logBlock
			if left < logHeader {
				data = append(data, make([]byte, left)...)
				continue
			}
			n := min(len(rest), left-logHeader)
			kind := byte(logMiddle)
			switch last := n == len(rest); {
			case first && last:
				kind = logWhole
			case first:
				kind = logFirst
			case last:
				kind = logLast
			}
			if first {
				offsets = append(offsets, int64(len(data)))
			}
			body := append([]byte{kind}, rest[:n]...)
			data = binary.LittleEndian.AppendUint32(data, masked(checksumCRC(body)))
			data = binary.LittleEndian.AppendUint16(data, uint16(n))
			data = append(data, body...)
			if rest, first = rest[n:], false; len(rest) == 0 {
				break
			}
		}
	}
	return data, offsets
}

// some are records of many sizes: some of them need several blocks.
func some() []string {
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprint(i, " ")+string(bytes.Repeat([]byte{byte('a' + i%26)}, i*i*i%40_000+1)))
	}
	return all
}

func read(t *testing.T, data []byte) ([]string, Log) {
	t.Helper()
	var got []string
	l, err := readLog(data, func(_ int64, record []byte) error { got = append(got, string(record)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return got, l
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	data, _ := written(some()...)
	got, l := read(t, append(data, make([]byte, 5000)...)) // a file may have room behind its end
	if !slices.Equal(got, some()) || l.Torn || l.BadEnd >= 0 || len(l.Damage) > 0 || l.Records != len(some()) {
		t.Errorf("%d records of %d, %+v", len(got), len(some()), l)
	}
}

// A flipped bit costs the record that it is in, wherever that is, and is never taken for
// the end of the file that a crash leaves, unless it is in the header of the last record.
func TestAFlippedBitCostsOneRecord(t *testing.T) {
	want := some()
	data, offsets := written(want...)
	for n, at := range offsets {
		for _, bit := range []int64{0, 4, 5, 6, 8} { // checksum, length, kind, bytes
			harmed := bytes.Clone(data)
			harmed[at+bit] ^= 0x40
			got, l := read(t, harmed)
			last := n == len(offsets)-1
			if len(got) != len(want)-1 || slices.Contains(got, want[n]) {
				t.Errorf("record %d, byte %d: %d records of %d are read", n, bit, len(got), len(want))
			}
			if seen := len(l.Damage) > 0 || l.BadEnd >= 0; !seen && (!last || bit < 4 || bit > 5) {
				t.Errorf("record %d, byte %d: not seen: %+v", n, bit, l)
			}
		}
	}
}

func TestAFileThatEndsWithinARecordIsTorn(t *testing.T) {
	want := some()
	data, offsets := written(want...)
	for cut := offsets[len(offsets)-1] + 1; cut < int64(len(data)); cut += 501 {
		got, l := read(t, data[:cut])
		if len(got) != len(want)-1 || !l.Torn || l.BadEnd >= 0 || len(l.Damage) > 0 {
			t.Errorf("cut at %d: %d records of %d, %+v", cut, len(got), len(want), l)
		}
	}
}

// Pages that a loss of power takes in any order may leave zeros, behind which RocksDB goes on with the next
// block: a record whose beginning is lost, or that is wrong, is damage to it.
func TestZerosThatAnythingFollowsAreDamage(t *testing.T) {
	want := some()
	data, _ := written(want...)
	end := int64(len(data))
	data = append(data, make([]byte, logBlock-len(data)%logBlock)...)
	rest := func(kind byte, sound bool) []byte {
		body := []byte("the rest of a record")
		b := make([]byte, logHeader, logHeader+len(body))
		binary.LittleEndian.PutUint16(b[4:], uint16(len(body)))
		b[6] = kind
		sum := masked(checksumCRC(append([]byte{kind}, body...)))
		if !sound {
			sum++
		}
		binary.LittleEndian.PutUint32(b, sum)
		return append(b, body...)
	}
	for name, x := range map[string]struct {
		behind []byte
		damage int64
		badEnd int64
		torn   bool
	}{
		"nothing":                        {nil, -1, -1, false},
		"more zeros":                     {make([]byte, 3*logBlock), -1, -1, false},
		"a record without its beginning": {rest(logLast, true), end, -1, false},
		"more of it":                     {append(rest(logMiddle, true), rest(logLast, true)...), end, -1, false},
		"a wrong record":                 {rest(logMiddle, false), -1, end, false},
		"a torn record":                  {rest(logMiddle, true)[:20], -1, -1, true},
		"a torn page and a wrong record": {append(bytes.Repeat([]byte{0, 1}, logBlock/2), rest(logMiddle, false)...), -1, end, false},
	} {
		got, l := read(t, append(bytes.Clone(data), x.behind...))
		var damage []int64
		if x.damage >= 0 {
			damage = []int64{x.damage}
		}
		if len(got) != len(want) || !slices.Equal(l.Damage, damage) || l.BadEnd != x.badEnd || l.Torn != x.torn {
			t.Errorf("%s: %d records of %d, %+v", name, len(got), len(want), l)
		}
	}
}

// Within a log, too, a record needs its beginning.
func TestARecordWithoutItsBeginningIsDamage(t *testing.T) {
	data, offsets := written(strings.Repeat("a", 3*logBlock), "b")
	for at := int64(logBlock); at < offsets[1]; at += logBlock {
		if got, l := read(t, data[at:]); len(got) != 1 || !slices.Equal(l.Damage, []int64{0}) {
			t.Errorf("from %d: %d records, %+v", at, len(got), l)
		}
	}
}

// Whatever bytes there are, reading ends, with nothing but an error.
func FuzzFiles(f *testing.F) {
	data, _ := written("one", "two")
	f.Add(data)
	f.Add([]byte{0, 9, 1, 'k', 'e', 'y', 1, 0, 0, 0, 0, 0, 0, 'v', 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadManifest(path); err != nil {
			t.Fatal(err)
		}
		r, err := OpenTable(path, func(out, _ []byte) error { clear(out); return nil })
		if err != nil {
			return
		}
		if err := r.Walk(func([]Entry) error { return nil }, func(Stretch) {}); err != nil {
			t.Error(err)
		}
		// Without checksums, which no chance gets right.
		if entries, ok := parseBlock(data, false); ok && len(entries) == 0 && len(data) > 1<<20 {
			t.Error("a large block without entries")
		}
		parseBlock(data, true)
		dataBlock(data)
		plainBlock(data)
		lz4Block(data)
		zstdBlock(data)
	})
}
