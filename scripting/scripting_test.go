package scripting

import (
	"testing"

	"github.com/faisca/fila/engine"
)

func sandbox(t testing.TB) *Sandbox {
	t.Helper()
	s, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB, s *Sandbox, kind engine.HookKind, source string) *Hook {
	t.Helper()
	h, err := s.Load(kind, source)
	if err != nil {
		t.Fatal(err)
	}
	return h.(*Hook)
}
