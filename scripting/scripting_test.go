package scripting

import (
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
)

func sandbox(t testing.TB) *Sandbox {
	t.Helper()
	s, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// patientSandbox is one whose scripts have all the time that a busy machine may take.
func patientSandbox(t testing.TB, timeout time.Duration) *Sandbox {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Timeout = timeout
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB, s *Sandbox, kind hook.Kind, source string) *Hook {
	t.Helper()
	h, err := accept(s, kind, source)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// accept is Load without its queue, so that tests need not wait for each other.
func accept(s *Sandbox, kind hook.Kind, source string) (*Hook, error) {
	h, err := s.Restore(kind, source)
	if err != nil {
		return nil, err
	}
	return h.(*Hook), s.start(h.(*Hook).script, hook.Bounds{})
}
