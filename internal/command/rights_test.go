package command

import (
	"testing"

	"github.com/faisca/fila/internal/acl"
)

func TestNeedOfEveryAccess(t *testing.T) {
	for access, want := range map[Access]acl.Need{Consume: acl.Consume, Produce: acl.Produce, Manage: acl.Manage, Look: acl.Look, ByFlags: acl.Manage} {
		if got := access.need(); got != want {
			t.Errorf("%d: %d, want %d", access, got, want)
		}
	}
}
