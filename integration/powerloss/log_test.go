package powerloss

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// noted is what a broker does to its log and writes into the journal.
type noted struct {
	t   *testing.T
	log *Log
}

func (n *noted) note(kind byte, number uint64, at int64, name string, old []byte) {
	n.t.Helper()
	r := binary.BigEndian.AppendUint64([]byte{kind}, number)
	r = binary.BigEndian.AppendUint64(r, uint64(at))
	r = binary.BigEndian.AppendUint16(r, uint16(len(name)))
	r = binary.BigEndian.AppendUint32(r, uint32(len(old)))
	f, err := os.OpenFile(n.log.journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(append(r, name...), old...))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// create makes a file of zeros.
func (n *noted) create(name string, size int) {
	n.t.Helper()
	n.note('C', 0, 0, name, nil)
	if err := os.WriteFile(filepath.Join(n.log.dir, name), make([]byte, size), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *noted) write(name string, at int64, text []byte) {
	n.t.Helper()
	f, err := os.OpenFile(filepath.Join(n.log.dir, name), os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	old := make([]byte, len(text))
	if _, err := f.ReadAt(old, at); err != nil {
		n.t.Fatal(err)
	}
	n.note('W', 0, at, name, old)
	if _, err := f.WriteAt(text, at); err != nil {
		n.t.Fatal(err)
	}
}

// sync syncs a file, with the directory, or lets the power go before it has ended.
func (n *noted) sync(number uint64, name string, ends bool) {
	n.note('D', number, 0, "", nil)
	n.note('F', number+1, 0, name, nil)
	if ends {
		n.note('S', number+1, 0, "", nil)
		n.note('S', number, 0, "", nil)
	}
}

// What was synced survives every cut; of the rest, sometimes all is lost, sometimes nothing, sometimes a part.
func TestWhatWasSyncedOfALogIsKept(t *testing.T) {
	const size, page = 16 << 10, 4096
	synced, unsynced := bytes.Repeat([]byte("s"), page), bytes.Repeat([]byte("u"), 2*page)
	seen := map[string]int{}
	for seed := range uint64(200) {
		work, dir := t.TempDir(), t.TempDir()
		l := NewLog(work, dir)
		l.Scatter = true
		if err := l.Begin(); err != nil {
			t.Fatal(err)
		}
		n := &noted{t, l}
		n.create("1.wal", size)
		n.write("1.wal", 100, synced)
		n.sync(1, "1.wal", true)
		n.write("1.wal", 100+page, unsynced)
		n.sync(3, "1.wal", false)
		n.create("2.wal", size)
		if _, err := l.Cut(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "1.wal"))
		if err != nil {
			t.Fatal(err)
		}
		if len(text) != size || !bytes.Equal(text[100:100+page], synced) {
			t.Fatalf("seed %d: what was synced is gone", seed)
		}
		switch count := bytes.Count(text, []byte("u")); count {
		case 0:
			seen["all is lost"]++
		case len(unsynced):
			seen["nothing is lost"]++
		default:
			seen["a part is lost"]++
		}
		switch info, err := os.Stat(filepath.Join(dir, "2.wal")); {
		case err != nil:
			seen["the new file is gone"]++
		case info.Size() == 0:
			seen["the new file is empty"]++
		default:
			seen["the new file is there"]++
		}
	}
	if len(seen) != 6 {
		t.Errorf("the cuts are always alike: %v", seen)
	}
}

// A file whose removal was not synced may come back, with what it had.
func TestARemovedFileMayComeBack(t *testing.T) {
	back := 0
	for seed := range uint64(50) {
		work, dir := t.TempDir(), t.TempDir()
		l := NewLog(work, dir)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "1.wal"), []byte("old"), 0o600), l.Begin()); err != nil {
			t.Fatal(err)
		}
		n := &noted{t, l}
		if err := os.Link(filepath.Join(dir, "1.wal"), filepath.Join(l.grave, "1.wal")); err != nil {
			t.Fatal(err)
		}
		n.note('U', 0, 0, "1.wal", nil)
		if err := os.Remove(filepath.Join(dir, "1.wal")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Cut(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "1.wal")); err == nil {
			back++
			if string(text) != "old" {
				t.Errorf("it has %q", text)
			}
		}
	}
	if back == 0 || back == 50 {
		t.Errorf("it came back %d of 50 times", back)
	}
}
