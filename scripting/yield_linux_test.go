//go:build !plain

package scripting

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// With one processor, a goroutine that waits for a socket runs while a script yields, and
// does not have to wait until the Go scheduler polls sockets.
func TestAPollServesThoseWhoWaitForFiles(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	slots, err := newSlots()
	if err != nil {
		t.Fatal(err)
	}
	l := <-slots
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var served atomic.Int32
	go func() {
		var b [1]byte
		for {
			if _, err := r.Read(b[:]); err != nil {
				return
			}
			served.Add(1)
		}
	}()
	for served.Load() == 0 { // until it has begun to wait
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		l.yield()
	}
	const rounds = 1000
	late := 0
	for range rounds {
		l.yield()
		l.yield()
		before := served.Load()
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		l.yield()
		l.yield() // the order in which both become ready is the system's
		if served.Load() == before {
			late++
		}
	}
	if late > rounds/10 {
		t.Errorf("%d of %d had to wait longer", late, rounds)
	}
}

func BenchmarkGiveWay(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	slots, err := newSlots()
	if err != nil {
		b.Fatal(err)
	}
	l := <-slots
	for b.Loop() {
		l.yield()
	}
}
