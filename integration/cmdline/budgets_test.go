package cmdline_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

func TestBudgetsAreMovedAndShownOnTheCommandLine(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "llm")
	b.want(0, "", "no budgets", "fila budgets list -o table >&2")
	b.want(0, "", "", "fila budgets set acme --low 200 --debt 0")
	b.want(0, "", "", "fila budgets set plan --refill 100 --every @monthly --tz Europe/Berlin --max 300")
	b.want(0, "1000\n", "", "fila budgets credit acme 1000 --id invoice-17")
	b.want(0, "1000\n", "", "fila budgets credit acme 1000 --id invoice-17 --note again")
	b.want(1, "", "INVALID", "fila budgets credit acme 1001 --id invoice-17")
	b.want(3, "", "NOBUDGET", "fila budgets credit nosuch 1")
	b.want(0, "900\n", "", "fila budgets charge acme 100 --note page")
	b.want(1, "", "CREDIT not enough", "fila budgets charge acme 901")
	b.want(0, "-1\n", "", "fila budgets charge acme 901 --force")
	b.want(0, "900\n", "", "fila budgets credit acme 901")
	b.want(0, "", "", "fila enqueue llm p1 --key acme --budget acme --budget plan --charge 80; fila enqueue llm p2 --key acme --budget acme --charge 880")
	b.do("FILA.LEASE", "llm", "COUNT", "2", "VISIBILITY", "3600000")
	b.want(0, "acme\t900\t80\t820\t1\t1901\t1001\t200\t\t\t\n", "", "fila budgets list --match 'ac*'")
	b.want(0, "NAME  BALANCE  RESERVED  AVAILABLE  WAITING", "", "fila budgets list -o table")
	b.want(0, "Budget \"acme\" has 820 credits available, the next message takes 880.\nstate      no_credit\n", "", "fila explain llm --key acme -o table")
	var shown map[string]any
	if err := json.Unmarshal([]byte(b.want(0, "", "", "fila budgets show plan -o json")), &shown); err != nil || shown["reserved"] != 80.0 || shown["every"] != "@monthly" || shown["zone"] != "Europe/Berlin" {
		t.Errorf("%v, %v", shown, err)
	}
	var kinds []string
	for line := range strings.Lines(b.want(0, "", "", "fila budgets history acme")) {
		kinds = append(kinds, strings.Split(line, "\t")[1])
	}
	if got := strings.Join(kinds, " "); got != "credit charge charge credit" {
		t.Errorf("the history has %s", got)
	}
	b.want(0, "\tlow\n", "", "fila budgets set low --low 5; (while fila budgets credit low 10 && fila budgets charge low 10; do :; done) > /dev/null 2>&1 & "+
		"fila tail --kind budget_low --count 1 --for "+testkit.Patience().String()+"; kill $!")
	b.want(1, "", "INVALID", "fila budgets delete acme --yes")
	b.want(2, "", "this cannot be undone", "fila budgets delete acme")
	b.do("FILA.QUEUE", "DELETE", "llm", "FORCE")
	b.want(0, "", "", "fila budgets delete acme --yes")
	b.want(3, "", "no budget is named acme", "fila budgets show acme")
}

func TestSignalsAreAddedAndShownOnTheCommandLine(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.want(0, "", "", "fila signals add provider:x refused; fila signals add provider:x refused 2.5; fila signals add provider:x pages 3 --at 1h")
	field := func(line string, n int) string { return strings.Split(b.want(0, "", "", line), "\t")[n] }
	if got := field("fila signals show provider:x refused", 6); got != "3.5" {
		t.Errorf("the sum of all is %s", got)
	}
	if n := strings.Count(b.want(0, "", "", "fila signals show provider:x"), "\n"); n != 2 {
		t.Errorf("%d signals", n)
	}
	b.want(0, "1\n", "", "fila signals delete provider:x refused --yes -o plain")
	b.want(3, "", "provider:x has no such signals", "fila signals delete provider:x refused --yes")
	if got := field("fila signals list --match 'provider:*'", 1); got != "pages" {
		t.Errorf("left is %s", got)
	}
}
