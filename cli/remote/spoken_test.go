package remote

import (
	"errors"
	"fmt"
	"testing"

	"github.com/faisca/fila/internal/client"
)

// What the broker says in its commands is said in those that are typed.
func TestRefusalsAreSaidInTheWordsOfTheCommandLine(t *testing.T) {
	remove := &call{row: &row{name: "queues delete", options: []option{{"force", "FORCE", yes, ""}}}}
	for _, x := range []struct{ code, text, want string }{
		{"INVALID", "the queue still holds messages, use FORCE to delete them with it", "INVALID the queue still holds messages, use --force to delete them with it"},
		{"NOQUEUE", `no such queue: "q", create it with FILA.QUEUE CREATE`, "NOQUEUE no such queue: \"q\", create it with `fila queues create`"},
		{"ERR", `it says "FORCED"`, `ERR it says "FORCED"`},
		{"ERR", "", "ERR"},
	} {
		err := remove.spoken(fmt.Errorf("line 3: %w", client.RefusalError{Code: x.code, Text: x.text}))
		if want := "line 3: " + x.want; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if !client.Refused(err, x.code) {
			t.Errorf("%q is no refusal any more", err)
		}
	}
	if err := errors.New("use FORCE"); remove.spoken(err).Error() != err.Error() {
		t.Error("an error of another kind is changed")
	}
}

func TestTheNearestNameIsFound(t *testing.T) {
	for _, x := range []struct {
		written string
		names   []string
		want    int
	}{
		{"ordrs", []string{"mails", "orders"}, 1},
		{"q", []string{"p"}, 0},
		{"invoices", []string{"orders"}, -1},
		{"q", nil, -1},
	} {
		if got := Nearest(x.written, x.names); got != x.want {
			t.Errorf("%q in %q: %d, want %d", x.written, x.names, got, x.want)
		}
	}
}
