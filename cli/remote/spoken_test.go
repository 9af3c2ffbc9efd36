package remote

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/pflag"

	"github.com/faisca/fila/internal/client"
)

// What the broker says in its commands is said in those that are typed.
func TestRefusalsAreSaidInTheWordsOfTheCommandLine(t *testing.T) {
	remove := &call{row: &row{name: "queues delete", options: []option{{"force", "FORCE", yes, ""}, {"rate", "RATE", number, ""}}}, flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	for _, o := range remove.options {
		o.register(remove.flags)
	}
	if err := remove.flags.Parse([]string{"--rate", "0"}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		code, text, want string
		wrong            bool // exit code 2
	}{
		{"INVALID", "the queue still holds messages, use FORCE to delete them with it", "INVALID the queue still holds messages, use --force to delete them with it", false},
		{"NOQUEUE", `no such queue: "q", create it with FILA.QUEUE CREATE`, "NOQUEUE no such queue: \"q\", create it with `fila queues create`", false},
		{"ERR", `it says "FORCED"`, `ERR it says "FORCED"`, false},
		{"ERR", "", "ERR", false},
		{"ERR", "RATE must be an integer from 1 up, not '0'", "ERR --rate must be an integer from 1 up, not '0'", true},
		{"ERR", "syntax error near 'x', usage: FILA.QUEUE DELETE", "ERR syntax error near 'x', usage: `fila queues delete`", true},
		{"INVALID", "not allowed: RATE 0, it must be from 1 to 9", "INVALID not allowed: --rate 0, it must be from 1 to 9", true},
		{"INVALID", "not allowed: the queue has no RATE", "INVALID not allowed: the queue has no --rate", false},
		{"INVALID", "FORCE is not given", "INVALID --force is not given", false},
	} {
		err := remove.spoken(fmt.Errorf("line 3: %w", client.RefusalError{Code: x.code, Text: x.text}))
		if want := "line 3: " + x.want; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if !client.Refused(err, x.code) {
			t.Errorf("%q is no refusal any more", err)
		}
		if _, wrong := errors.AsType[UsageError](err); wrong != x.wrong {
			t.Errorf("%q: asked wrongly is %v, want %v", err, wrong, x.wrong)
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
