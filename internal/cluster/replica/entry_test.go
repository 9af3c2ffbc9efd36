package replica

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

func anEntry() Entry { return Entry{Term: 3, Number: 9, Part: 1, Parts: 4, Bytes: []byte("bytes")} }

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	e := anEntry()
	enc := e.Append([]byte("before"))
	got, err := ParseEntry(enc[len("before"):])
	if err != nil || got.Term != e.Term || got.Number != e.Number || got.Part != e.Part || got.Parts != e.Parts || string(got.Bytes) != "bytes" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The header is part of the format of a cluster: nodes of different versions read each other's.
func TestTheHeaderIsWhatTheDocumentSays(t *testing.T) {
	e := anEntry()
	want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 4, 0x91, 0x10, 0x9b, 0xfb}
	if got := e.Append(nil)[:headerBytes]; !bytes.Equal(got, want) {
		t.Errorf("the header is %x, want %x", got, want)
	}
}

func TestEveryChangedByteOfAnEntryIsFound(t *testing.T) {
	e := anEntry()
	enc := e.Append(nil)
	for i := range enc {
		for _, flip := range []byte{1, 0x80} {
			bad := slices.Clone(enc)
			bad[i] ^= flip
			if _, err := ParseEntry(bad); !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Errorf("byte %d: %v", i, err)
			}
		}
	}
	for n := range enc {
		if _, err := ParseEntry(enc[:n]); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestAnEntryOfANewerFilaIsToldApart(t *testing.T) {
	e := anEntry()
	enc := e.Append(nil)
	enc[0] = EntryNewest + 1
	if _, err := ParseEntry(enc); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
	flagged := e.Append(nil)
	flagged[1] = 2
	sum := crcOf(flagged[:crcAt], e.Bytes)
	flagged[crcAt], flagged[crcAt+1], flagged[crcAt+2], flagged[crcAt+3] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	if _, err := ParseEntry(flagged); !errors.Is(err, ErrNewer) {
		t.Errorf("an unknown flag: %v", err)
	}
}

func TestTheNumbersOfAnEntryHaveBounds(t *testing.T) {
	for _, x := range []struct {
		change func(e *Entry)
		ok     bool
	}{
		{func(*Entry) {}, true},
		{func(e *Entry) { e.Term = 0 }, false},
		{func(e *Entry) { e.Number = 0 }, false},
		{func(e *Entry) { e.Parts = 0 }, false},
		{func(e *Entry) { e.Part = 3 }, true},
		{func(e *Entry) { e.Part = 4 }, false},
		{func(e *Entry) { e.Parts = PartsMax }, true},
		{func(e *Entry) { e.Parts = PartsMax + 1 }, false},
		{func(e *Entry) { e.Bytes = make([]byte, PartBytes) }, true},
		{func(e *Entry) { e.Bytes = make([]byte, PartBytes+1) }, false},
	} {
		e := anEntry()
		x.change(&e)
		if _, err := ParseEntry(e.Append(nil)); (err == nil) != x.ok || err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("part %d of %d, %d bytes, batch %d of term %d: %v", e.Part, e.Parts, len(e.Bytes), e.Number, e.Term, err)
		}
	}
}

func TestABatchIsDividedIntoPartsOfBoundedSize(t *testing.T) {
	for _, x := range []struct{ size, parts int }{{12, 1}, {99, 1}, {100, 1}, {101, 2}, {200, 2}, {201, 3}, {100 * PartsMax, PartsMax}} {
		batch := make([]byte, x.size)
		for i := range batch {
			batch[i] = byte(i)
		}
		all, err := divide(Entry{Term: 3, Number: 9}, batch, 100)
		if err != nil {
			t.Fatal(err)
		}
		entries := slices.Collect(all)
		if len(entries) != x.parts {
			t.Fatalf("%d bytes: %d entries, %v", x.size, len(entries), err)
		}
		var whole []byte
		for n, enc := range entries {
			e, err := ParseEntry(enc)
			if err != nil || int(e.Part) != n || int(e.Parts) != x.parts || e.Version != EntryVersion || e.Term != 3 || e.Number != 9 || len(e.Bytes) > 100 {
				t.Fatalf("%d bytes, entry %d: %+v, %v", x.size, n, e, err)
			}
			whole = append(whole, e.Bytes...)
		}
		if !bytes.Equal(whole, batch) {
			t.Errorf("%d bytes came back as %d others", x.size, len(whole))
		}
	}
	if _, err := divide(Entry{Term: 3, Number: 9}, make([]byte, 100*PartsMax+1), 100); err == nil {
		t.Error("a batch of too many parts is taken")
	}
}

func FuzzEntry(f *testing.F) {
	e := anEntry()
	enc := e.Append(nil)
	for n := range enc {
		f.Add(enc[:n])
	}
	f.Add(enc)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEntry(b)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if again := e.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
