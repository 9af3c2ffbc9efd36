//go:build !race

package resp

import (
	"bytes"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// The race detector allocates on its own.

// readAllocations is the budget of a pipeline of 16 commands of 4 words each that come
// with one read, for all of them: the words, and what they lie in.
const readAllocations = 7

func TestReadingAPipelineAllocatesWithinItsBudget(t *testing.T) {
	const commands = 16
	in := enqueues(commands, 256)
	p := &pools{}
	source := bytes.NewReader(in)
	r := newReader(newStreamSource(source), p, DefaultLimits())
	r.authenticated = true
	defer r.release()
	n := testkit.Allocations(200, func() {
		source.Reset(in)
		for left := commands; left > 0; {
			cmds, err := r.next(handleMax)
			if err != nil {
				t.Fatal(err)
			}
			left -= len(cmds)
		}
	})
	if n > readAllocations {
		t.Errorf("%v allocations for %d commands, the budget is %d", n, commands, readAllocations)
	}
}
