package directory_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/faisca/fila/engine/internal/directory"
)

type value struct {
	name string
	n    int
}

func values() *directory.Directory[value] {
	return directory.New(func(v *value) string { return v.name })
}

// TestADirectoryIsAMap compares one with a map, in which names come, go and come again.
func TestADirectoryIsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 0))
	for range 20 {
		d, m := values(), map[string]*value{}
		names := 1 + r.IntN(5000)
		grows := r.IntN(3) // of 4 changes, how many remove more than they add
		for step := range 20_000 {
			name := fmt.Sprint("n", r.IntN(names))
			switch {
			case d.Get(name) != m[name]:
				t.Fatalf("step %d: %s is %v, want %v", step, name, d.Get(name), m[name])
			case m[name] == nil:
				m[name] = &value{name, step}
				d.Add(m[name])
			case r.IntN(4) > grows:
				d.Remove(name)
				delete(m, name)
			}
			if d.Len() != len(m) {
				t.Fatalf("step %d: %d values, want %d", step, d.Len(), len(m))
			}
		}
		for i := range names {
			if name := fmt.Sprint("n", i); d.Get(name) != m[name] {
				t.Fatalf("%s is %v, want %v", name, d.Get(name), m[name])
			}
		}
	}
}

// Values that stay are found at any time, whatever is added and removed meanwhile.
func TestLookUpsGoOnDuringChanges(t *testing.T) {
	const stay, come = 1000, 20_000
	d := values()
	for i := range stay {
		d.Add(&value{fmt.Sprint("stay", i), i})
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for looked := 0; ; looked++ {
				select {
				case <-done:
					if looked == 0 {
						t.Error("nothing was looked up")
					}
					return
				default:
				}
				for range 100 {
					i := r.IntN(stay)
					if v := d.Get(fmt.Sprint("stay", i)); v == nil || v.n != i {
						t.Errorf("stay%d is %v", i, v)
						return
					}
					name := fmt.Sprint("come", r.IntN(come))
					if v := d.Get(name); v != nil && v.name != name {
						t.Errorf("%s is %v", name, v)
						return
					}
				}
			}
		})
	}
	for round := range 3 {
		for i := range come {
			d.Add(&value{fmt.Sprint("come", i), round})
		}
		for i := range come {
			d.Remove(fmt.Sprint("come", i))
		}
	}
	close(done)
	readers.Wait()
	if d.Len() != stay {
		t.Errorf("%d values are left, want %d", d.Len(), stay)
	}
}

func TestADirectoryTakesAtMost22BytesForAValue(t *testing.T) {
	for _, n := range []int{100_000, 150_000, 200_000, 250_000} {
		all := make([]value, n)
		for i := range all {
			all[i].name = fmt.Sprint(i)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		d := values()
		for i := range all {
			d.Add(&all[i])
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := float64(after.HeapAlloc-before.HeapAlloc) / float64(n); each > 22 || each < 8 {
			t.Errorf("%d values: %.1f bytes each", n, each)
		}
		runtime.KeepAlive(d)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		d, m, names := values(), map[string]*value{}, make([]string, n)
		for i := range n {
			names[i] = fmt.Sprintf("budget-%d", i)
			m[names[i]] = &value{names[i], i}
			d.Add(m[names[i]])
		}
		for name, get := range map[string]func(string) *value{"map": func(s string) *value { return m[s] }, "directory": d.Get} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				for b.Loop() {
					if get(names[r.IntN(n)]) == nil {
						b.Fatal("not found")
					}
				}
			})
		}
	}
}
