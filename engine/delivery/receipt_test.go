package delivery

import (
	"errors"
	"testing"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

func TestReceiptsAreReadAsTheyAreWritten(t *testing.T) {
	id := storage.MakeID(1_700_000_000_123_456_789, storage.KeyHash("k"), 5, 7)
	r := Receipt{ID: id, Fence: 1<<40 + 7}
	if got, err := ParseReceipt([]byte(r.String())); err != nil || got != r {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{
		"", ":", ":1", "x", id.String() + ":", id.String() + ":01", id.String() + ":+1", id.String() + ":-1", id.String() + ":1 ",
		id.String() + ":99999999999999999999", id.String() + ":1:1", "{" + id.String() + "}", id.String()[:35],
	} {
		if _, err := ParseReceipt([]byte(bad)); !errors.Is(err, refusals.ErrBadReceipt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
