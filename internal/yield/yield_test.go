package yield

import "testing"

func TestAPollAllocatesNothing(t *testing.T) {
	p, err := NewPoll()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if n := testing.AllocsPerRun(100, p.Wait); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
