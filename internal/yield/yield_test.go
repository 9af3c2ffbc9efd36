package yield

import (
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

func TestAPollAllocatesNothing(t *testing.T) {
	p, err := NewPoll()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if n := testkit.Allocations(100, p.Wait); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
