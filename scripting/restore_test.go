package scripting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// Loading a script waits for its turns, and stays away after statements that take long.
// A start does not.
func TestRestoringDoesNotYield(t *testing.T) {
	var source strings.Builder
	for f := range 8 {
		fmt.Fprintf(&source, "local function f%d() return {", f)
		for i := range 400 {
			fmt.Fprintf(&source, "%d,", f*400+i)
		}
		source.WriteString("} end\n")
	}
	source.WriteString("function on_enqueue(msg) return { weight = #f0() } end")
	s := patientSandbox(t, time.Minute)
	s.give(s.take())         // one that runs the script as always
	s.slots = make(slots, 1) // and it never comes
	h, err := s.Restore(hook.OnEnqueue, source.String())
	if err != nil {
		t.Fatal(err)
	}
	if d, err := h.OnEnqueue(time.Now(), benchMessage(), nil, hook.Bounds{}); err != nil || d.Weight != 400 {
		t.Errorf("%+v, %v", d, err)
	}
}
