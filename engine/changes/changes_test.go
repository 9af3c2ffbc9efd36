package changes

import (
	"math/rand/v2"
	"testing"

	"github.com/faisca/fila/storage"
)

func id(n int) storage.ID { return storage.MakeID(int64(n+1), 0, 0, 0) }

func TestAReaderLearnsWhatHasChanged(t *testing.T) {
	var l Log[int]
	if l.Change(id(1)) != nil {
		t.Error("a change is recorded without readers")
	}
	l.Gone(id(1))
	first := l.Open()
	*l.Change(id(1)) = 7
	second := l.Open()
	l.Gone(id(2))
	for _, test := range []struct {
		n     int
		since Place
		d     int
		known bool
		gone  bool
	}{{1, first, 7, true, false}, {1, second, 7, true, false}, {2, first, 0, true, true}, {2, second, 0, true, true}, {3, first, 0, false, false}} {
		d, gone := l.Since(id(test.n), test.since)
		if (d != nil) != test.known || gone != test.gone || d != nil && *d != test.d {
			t.Errorf("message %d since %d: %v, gone %v", test.n, test.since, d, gone)
		}
	}
	later := l.Open()
	*l.Change(id(2)) = 3 // it has come back
	if d, gone := l.Since(id(2), later); gone || *d != 3 {
		t.Error("a message that was gone before is gone")
	}
	if _, gone := l.Since(id(2), second); !gone {
		t.Error("a message that has come back is the one from before")
	}
	for range 3 {
		l.Close()
	}
	if d, _ := l.Since(id(1), later); d != nil || l.Readers() != 0 {
		t.Error("a log without readers has entries")
	}
}

func TestALogIsBounded(t *testing.T) {
	var l Log[int]
	first := l.Open()
	for n := range Max {
		l.Change(id(n))
	}
	if second := l.Open(); !l.Complete(first) || !l.Complete(second) {
		t.Fatal("entries are dropped below the bound")
	}
	l.Change(id(Max))
	if !l.Complete(first) {
		t.Error("entries are dropped although no reader was added")
	}
	third := l.Open()
	if d, _ := l.Since(id(0), third); d != nil || l.Complete(first) || !l.Complete(third) {
		t.Error("a reader too many does not drop the entries")
	}
	for n := range 2 {
		l.Change(id(n))
		if held := l.Hold(BytesMax); held != (n == 0) || l.Complete(third) != held {
			t.Errorf("entry %d is held: %v", n, held)
		}
	}
	if fourth := l.Open(); !l.Complete(fourth) || !l.Hold(BytesMax) {
		t.Error("the bytes of what was dropped count")
	}
}

// Random changes: each reader with a complete log knows what has become of each message since it has opened it.
func TestReadersFollow(t *testing.T) {
	type reader struct {
		at    Place
		state [5]int // of the messages when it was opened; 0: gone
	}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		var l Log[int]
		var now, born [5]int // states, and the step in which a message came last
		var readers []reader
		opened := map[Place]int{}
		for step := 1; step < 300; step++ {
			n := rng.IntN(5)
			switch rng.IntN(6) {
			case 0:
				r := reader{l.Open(), now}
				readers, opened[r.at] = append(readers, r), step
			case 1:
				if len(readers) > 0 {
					l.Close()
					readers = readers[1:]
				}
			case 2:
				if now[n] != 0 {
					now[n] = 0
					l.Gone(id(n))
				}
			default:
				if now[n] == 0 {
					born[n] = step
				}
				now[n] = step
				if d := l.Change(id(n)); d != nil {
					*d = step
				}
			}
			for _, r := range readers {
				for n, was := range r.state {
					d, gone := l.Since(id(n), r.at)
					switch {
					case !l.Complete(r.at):
						t.Fatal("changes are lost")
					case was == 0: // the reader has not found it
					case gone != (now[n] == 0 || born[n] > opened[r.at]):
						t.Fatalf("seed %d: message %d is gone: %v", seed, n, gone)
					case !gone && now[n] != was && (d == nil || *d != now[n]):
						t.Fatalf("seed %d: message %d was %d and is %d, the log has %v", seed, n, was, now[n], d)
					}
				}
			}
		}
	}
}
