package cmdline_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
)

// A group is opened, gets members from standard input, is sealed, and its message comes when they are acked.
func TestAGroupIsRunFromTheCommandLine(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "pages")
	b.do("FILA.QUEUE", "CREATE", "reports")
	b.want(0, "no groups", "", "fila groups list -o table")
	b.want(3, "", "no group is named import-7", "fila groups show import-7")
	b.want(3, "", "NOGROUP", "fila groups seal import-7")
	b.want(3, "", "NOQUEUE", "fila groups open import-7 report summary")
	b.want(0, "1\n", "", "fila groups open import-7 reports summary --header kind=import --priority 9")
	b.want(0, "0\n", "", "fila groups open import-7 reports other -o json")
	ids := strings.Fields(b.want(0, "", "", "seq 3 | fila enqueue pages --lines --group import-7"))
	if len(ids) != 3 {
		t.Fatalf("enqueued are %q", ids)
	}
	b.want(3, "", "NOGROUP", "fila enqueue pages x --group nosuch")
	b.want(0, "import-7\topen\t3\t3\t0\t0\t0\t", "", "fila groups list")
	b.want(0, "NAME      STATE  MEMBERS  PENDING  DONE  DEAD  CANCELLED  OPENED_AT\nimport-7  open   3        3        0     0     0          ", "", "fila groups list -o table")
	b.completes("import-7\n", "fila __complete groups show ''")
	b.want(0, "sealed import-7, 3 pending\n", "", "fila groups seal import-7 -o table")
	b.want(0, "3\n", "", "fila groups seal import-7 -o json")
	b.want(1, "", "SEALED", "fila enqueue pages x --group import-7")
	for _, m := range b.do("FILA.LEASE", "pages", "COUNT", "3").([]any) {
		b.do("FILA.ACK", "pages", client.Text(m.([]any)[0]))
	}
	var shown struct {
		State, Message      string
		Members, Done, Dead int
	}
	if err := json.Unmarshal([]byte(b.want(0, "", "", "fila groups show import-7 -o json")), &shown); err != nil || shown.State != "done" || shown.Members != 3 || shown.Done != 3 {
		t.Errorf("%+v, %v", shown, err)
	}
	b.want(0, "summary", "", "fila get reports "+shown.Message+" --payload")
	b.want(0, "", "", "fila groups list")
	b.want(2, "", "this cannot be undone: give --yes", "fila groups cancel import-7")
	b.want(3, "", "import-7 has ended already", "fila groups cancel import-7 --yes")
	b.want(2, "", "takes GROUP QUEUE PAYLOAD, as in", "fila groups open import-7")
}

// A group is cancelled, and lists are filtered and cut.
func TestGroupsAreListedAndCancelledOnTheCommandLine(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "pages")
	for i := range 1200 {
		b.do("FILA.GROUP", "OPEN", fmt.Sprintf("import-%d", i), "pages", "all done")
	}
	if n := strings.Count(b.want(0, "import-1199\topen", "", "fila groups list"), "\n"); n != 1200 {
		t.Errorf("%d groups are listed", n)
	}
	if n := strings.Count(b.want(0, "", "", "fila groups list --match 'import-11?'"), "\n"); n != 10 {
		t.Errorf("%d groups match", n)
	}
	b.want(0, "import-0\nimport-1\n", "only the first 2 are shown; --limit 0 shows all", "fila groups list --limit 2 | cut -f 1")
	b.want(0, "1\n", "", "fila groups open outer pages 'all done' --when done --expire 1h")
	b.want(0, "1\n", "", "fila groups open inner pages done --group outer")
	id := strings.TrimSpace(b.want(0, "", "no queue is bound to pages", "fila publish pages x --group outer -o plain; fila enqueue pages x --group outer"))
	b.want(0, "cancelled outer\n", "", "fila groups cancel outer -y -o table")
	b.want(0, `"state":"cancelled","members":2,`, "", "fila groups show outer -o jsonl")
	b.want(3, "", "pages has no message "+id, "until ! fila get pages "+id+" > log 2>&1; do :; done; fila get pages "+id)
	b.want(1, "", "SEALED", "fila enqueue pages x --group outer")
}
