//go:build !fault

package fault

import (
	"testing"

	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

func TestWithoutTheTagNothingIsWrapped(t *testing.T) {
	t.Setenv("PLANTED_FAULT", "dropped-ack")
	store := storage.NewMemory()
	if got := WrapStore(store); got != Store(store) {
		t.Errorf("the store is wrapped in a %T", got)
	}
	session := new(silent)
	if got := WrapSession(session); got != resp.Session(session) {
		t.Errorf("the session is wrapped in a %T", got)
	}
}

// silent is a session without methods; none is called.
type silent struct{ resp.Session }
