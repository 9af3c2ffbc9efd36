package integration_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// speaker runs what docs/explanation/budgets.md shows with one client in one protocol.
type speaker struct {
	*testing.T
	wire
	broker *harness.Broker
}

// plain makes replies of all clients alike: numbers are int64, nil is nil, and maps are as they come.
func plain(reply any) any {
	switch v := reply.(type) {
	case float64:
		return int64(v)
	case string:
		if v == redis.Nil.Error() {
			return nil
		}
		return strings.Trim(v, `"`)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = plain(v[i])
		}
		return all
	case map[string]any:
		m := map[any]any{}
		for name, value := range v {
			m[name] = plain(value)
		}
		return m
	case map[any]any:
		m := map[any]any{}
		for name, value := range v {
			m[name] = plain(value)
		}
		return m
	default:
		return v
	}
}

// spoken splits a line at its blanks, except for those within quotes.
func spoken(line string) []string {
	all := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1)
	for i := range all {
		all[i] = strings.Trim(all[i], `"`)
	}
	return all
}

func (s *speaker) run(line string) any {
	s.Helper()
	return plain(s.do(s.T, spoken(line)...))
}

// says fails unless the reply to a line begins with what is wanted.
func (s *speaker) says(want, line string) {
	s.Helper()
	if got := fmt.Sprint(s.run(line)); !strings.HasPrefix(got, want) || want == "" && got != "" {
		s.Errorf("%s: %s, want %s", line, got, want)
	}
}

// has fails unless the reply to a line is a map with these fields: "balance 850 reserved 0".
func (s *speaker) has(fields, line string) {
	s.Helper()
	s.fields(fields, line, s.run(line))
}

func (s *speaker) fields(want, line string, reply any) {
	s.Helper()
	m := kit.Mapped(s.T, reply)
	list := spoken(want)
	for i := 0; i+1 < len(list); i += 2 {
		if got := fmt.Sprint(m[list[i]]); got != list[i+1] {
			s.Errorf("%s: %s is %s, want %s", line, list[i], got, list[i+1])
		}
	}
}

// id enqueues a message with a line and returns its id.
func (s *speaker) id(line string) string {
	s.Helper()
	id, ok := s.run("FILA.ENQUEUE " + line).(string)
	if !ok || len(id) != 36 {
		s.Fatalf("%s: %s", line, id)
	}
	return id
}

// out leases what a queue gives and fails unless these payloads go out. It returns the receipts.
func (s *speaker) out(queue string, payloads ...string) (receipts []string) {
	s.Helper()
	ds, err := leased(s.run("FILA.LEASE " + queue + " COUNT 10"))
	if err != nil {
		s.Fatal(err)
	}
	var got []string
	for i := range ds {
		got, receipts = append(got, ds[i].payload), append(receipts, ds[i].receipt)
	}
	if slices.Sort(got); !slices.Equal(got, payloads) {
		s.Fatalf("%v went out, want %v", got, payloads)
	}
	return receipts
}

// sums fails unless a budget has these sums.
func (s *speaker) sums(budget string, credited, spent, reserved int64) {
	s.Helper()
	s.has(fmt.Sprintf("balance %d reserved %d available %d credited %d spent %d", credited-spent, reserved, credited-spent-reserved, credited, spent), "FILA.BUDGET GET "+budget)
}

// page returns the list of a reply that is a page, and its cursor.
func (s *speaker) page(line string) (cursor string, list []any) {
	s.Helper()
	p, ok := s.run(line).([]any)
	if !ok || len(p) != 2 {
		s.Fatalf("%s: %v is no page", line, p)
	}
	list, _ = p[1].([]any)
	return fmt.Sprint(p[0]), list
}

// restart kills the broker, after what was answered.
func (s *speaker) restart() {
	s.Helper()
	if err := s.broker.Kill(); err != nil {
		s.Fatal(err)
	}
	kit.Start(s.T, s.broker)
}

// serveSpeakers starts a broker for speakers: leases last longer than any number of restarts and of processes of redis-cli.
func serveSpeakers(t *testing.T, args ...string) *harness.Broker {
	t.Helper()
	return kit.Serve(t, append(args, "--scheduler.visibility_timeout_ms", "3600000")...)
}

func TestBudgetsAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		b := serveSpeakers(t, "--storage.lease_lag_ms", "0")
		w := wires(t, b.Addr())[i]
		for _, part := range []struct {
			name string
			run  func(s *speaker)
		}{
			{"the first example", firstExample}, {"what moves a sum", whatMovesASum}, {"how a lease ends", howALeaseEnds}, {"commands", budgetCommands}, {"settings", budgetSettings},
			{"amounts", budgetAmounts}, {"a message and its budgets", messageAndBudgets}, {"dead letters", deadLetters}, {"waiting", whatKeysWaitFor}, {"refills", refillTable},
			{"ids", idsOfMovements}, {"history", historyOfABudget}, {"transactions", budgetTransactions}, {"adaptive throttles", adaptiveForms}, {"hooks", budgetsOfHooks}, {"signals of hooks", signalsOfHooks},
		} {
			t.Run(w.name+"/"+part.name, func(t *testing.T) { part.run(&speaker{t, w, b}) })
		}
	}
}

func firstExample(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE llm")
	s.says("OK", "FILA.BUDGET SET acme LOW 200")
	s.says("1000", "FILA.BUDGET CREDIT acme 1000 ID invoice-17")
	s.says("1000", "FILA.BUDGET CREDIT acme 1000 ID invoice-17")
	s.id("llm p1 KEY acme BUDGET acme CHARGE 800")
	s.id("llm p2 KEY acme BUDGET acme CHARGE 800")
	p1 := s.out("llm", "p1")
	s.sums("acme", 1000, 0, 800)
	s.has("state no_credit budget acme charge 800 available 200", "FILA.EXPLAIN llm KEY acme")
	s.restart()
	s.sums("acme", 1000, 0, 800)
	s.says("1000", "FILA.BUDGET CREDIT acme 1000 ID invoice-17")
	s.says("1", "FILA.ACK llm "+p1[0]+" USED 150")
	s.says("0", "FILA.ACK llm "+p1[0]+" USED 150")
	s.sums("acme", 1000, 150, 0)
	p2 := s.out("llm", "p2")
	s.says("1", "FILA.ACK llm "+p2[0])
	s.sums("acme", 1000, 950, 0)
}

func whatMovesASum(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE q")
	s.says("OK", "FILA.BUDGET SET b")
	s.says("100", "FILA.BUDGET CREDIT b 100")
	s.says("90", "FILA.BUDGET CHARGE b 10")
	s.sums("b", 100, 10, 0)
	for _, m := range []string{"a", "c", "d", "e"} {
		s.id("q " + m + " KEY " + m + " BUDGET b CHARGE 20")
	}
	r := s.out("q", "a", "c", "d", "e")
	s.sums("b", 100, 10, 80)
	s.says("1", "FILA.ACK q "+r[0])
	s.says("1", "FILA.ACK q "+r[1]+" USED 0")
	s.has("action dlq", "FILA.NACK q "+r[2]+" DEAD")
	s.has("action retry", "FILA.NACK q "+r[3]+" DELAY 3600000 USED 7")
	s.sums("b", 100, 37, 0)
	s.says("1", "FILA.PURGE q")
}

// howALeaseEnds ends a lease in each way that gives its reservation back.
func howALeaseEnds(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE ends MAXATTEMPTS 0 BACKOFF 3600000")
	s.says("OK", "FILA.BUDGET SET e")
	s.says("5", "FILA.BUDGET CREDIT e 5")
	id, receipt := s.leased()
	s.says("1", "FILA.RELEASE ends "+receipt)
	s.sums("e", 5, 0, 0)
	s.says("1", "FILA.CANCEL ends "+id)
	id, _ = s.leased()
	s.says("1", "FILA.CANCEL ends "+id)
	s.sums("e", 5, 0, 0)
	s.leased()
	s.says("1", "FILA.PURGE ends")
	s.sums("e", 5, 0, 0)
	s.id("ends x BUDGET e CHARGE 5")
	late, err := leased(s.run("FILA.LEASE ends VISIBILITY 1"))
	if err != nil || len(late) != 1 {
		s.Fatal(late, err)
	}
	testkit.Eventually(s.T, "nothing is reserved", func() bool { return fmt.Sprint(kit.Mapped(s.T, s.run("FILA.BUDGET GET e"))["reserved"]) == "0" })
	s.says("0", "FILA.ACK ends "+late[0].receipt+" USED 5")
	s.sums("e", 5, 0, 0)
	s.says("0", "FILA.BUDGET CHARGE e 5 ID "+late[0].receipt+" FORCE")
	s.says("0", "FILA.BUDGET CHARGE e 5 ID "+late[0].receipt+" FORCE")
	s.says("5", "FILA.BUDGET CREDIT e 5")
	s.says("1", "FILA.PURGE ends")
	id, _ = s.leased()
	s.restart()
	s.sums("e", 10, 5, 5)
	s.has("status leased", "FILA.GET ends "+id)
	s.says("OK", "FILA.QUEUE DELETE ends FORCE")
	s.sums("e", 10, 5, 0)
}

// leased leases a message that takes 5 credits of budget e.
func (s *speaker) leased() (id, receipt string) {
	s.Helper()
	id = s.id("ends x BUDGET e CHARGE 5")
	receipt = s.out("ends", "x")[0]
	s.has("reserved 5", "FILA.BUDGET GET e")
	return id, receipt
}

func budgetCommands(s *speaker) {
	fields := []string{"name", "balance", "reserved", "available", "credited", "spent", "debt", "low", "refuse", "detail", "refill", "every", "zone", "max", "next_at", "waiting", "created_at", "refill_error"}
	s.says("OK", "FILA.BUDGET SET full DEBT 5 LOW 4 REFUSE DETAIL REFILL 3 EVERY @monthly TZ Europe/Berlin MAX 9")
	got := s.run("FILA.BUDGET GET full")
	if flat, ok := got.([]any); ok { // RESP2 shows the order
		var names []string
		for i := 0; i < len(flat); i += 2 {
			names = append(names, fmt.Sprint(flat[i]))
		}
		if !slices.Equal(names, fields) {
			s.Errorf("the fields are %v", names)
		}
	}
	if n := len(kit.Mapped(s.T, got)); n != len(fields) {
		s.Errorf("%d fields", n)
	}
	s.fields("name full balance 3 debt 5 low 4 refuse 1 detail 1 refill 3 every @monthly zone Europe/Berlin max 9 waiting 0", "FILA.BUDGET GET full", got)
	s.says("OK", "FILA.BUDGET SET full") // settings get their defaults, sums stay
	s.has("balance 3 credited 3 debt 0 low <nil> refuse 0 detail 0 refill <nil> every <nil> zone <nil> max <nil> next_at <nil>", "FILA.BUDGET GET full")
	for _, line := range []string{"CREDIT nosuch 1", "CHARGE nosuch 1", "HISTORY nosuch"} {
		s.says("NOBUDGET", "FILA.BUDGET "+line)
	}
	s.says("NOBUDGET", "FILA.ENQUEUE llm x BUDGET nosuch")
	s.says("<nil>", "FILA.BUDGET GET nosuch")
	s.says("0", "FILA.BUDGET DEL nosuch")
	s.says("CREDIT", "FILA.BUDGET CHARGE full 4")
	s.says("-1", "FILA.BUDGET CHARGE full 4 FORCE")
	for _, line := range []string{"EVERY @daily", "TZ UTC", "MAX 3", "REFILL 3", "REFILL 3 TZ UTC"} {
		s.says("ERR", "FILA.BUDGET SET full "+line)
	}
	seen := map[string]bool{}
	for cursor := "0"; ; {
		next, list := s.page("FILA.BUDGET LIST MATCH * CURSOR " + cursor + " COUNT 2")
		for _, m := range list {
			seen[fmt.Sprint(kit.Mapped(s.T, m)["name"])] = true
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	if !seen["full"] || !seen["acme"] || !seen["b"] {
		s.Errorf("listed %v", seen)
	}
	if _, list := s.page("FILA.BUDGET LIST MATCH ful?"); len(list) != 1 {
		s.Errorf("%v match", list)
	}
	s.says("1", "FILA.BUDGET DEL full")
}

func budgetSettings(s *speaker) {
	protocol := 3
	if strings.HasSuffix(s.name, "RESP2") {
		protocol = 2
	}
	c := kit.Connect(s.T, s.broker.Addr(), protocol)
	events := c.PSubscribe(s.Context(), "fila::*")
	defer events.Close()
	if _, err := events.Receive(s.Context()); err != nil {
		s.Fatal(err)
	}
	notified := func(event, budget string) {
		s.Helper()
		m, err := events.ReceiveMessage(s.Context())
		if err != nil || m.Channel != "fila::"+event || !strings.Contains(m.Payload, `"budget":"`+budget+`"`) {
			s.Errorf("%v (%v), want %s of %s", m, err, event, budget)
		}
	}
	s.says("OK", "FILA.QUEUE CREATE set")
	s.says("OK", "FILA.BUDGET SET s LOW 8 DEBT 2")
	s.says("10", "FILA.BUDGET CREDIT s 10")
	s.says("7", "FILA.BUDGET CHARGE s 3")
	notified("budget_low", "s")
	s.id("set 9 BUDGET s CHARGE 9") // 2 of them are a debt
	s.id("set 1 BUDGET s CHARGE 1")
	r := s.out("set", "9")
	notified("budget_empty", "s")
	s.says("OK", "FILA.BUDGET SET s DEBT 3")
	r = append(r, s.out("set", "1")...)
	s.says("2", "FILA.ACK set "+strings.Join(r, " "))
	s.sums("s", 10, 13, 0)
	s.says("OK", "FILA.BUDGET SET refusing REFUSE")
	s.says("3", "FILA.BUDGET CREDIT refusing 3")
	s.says("CREDIT", "FILA.ENQUEUE set 4 BUDGET refusing CHARGE 4")
	s.id("set 3 BUDGET refusing CHARGE 3")
	s.says("0", "FILA.BUDGET CHARGE refusing 3")
	s.out("set") // what was accepted is held when the credits are gone
	notified("budget_empty", "refusing")
	s.says("3", "FILA.BUDGET CREDIT refusing 3")
	s.says("1", "FILA.ACK set "+s.out("set", "3")[0])
	s.says("OK", "FILA.BUDGET SET free")
	s.id("set 0 BUDGET free CHARGE 0") // needs no credit
	s.says("1", "FILA.ACK set "+s.out("set", "0")[0]+" USED 12")
	s.sums("free", 0, 12, 0)
	s.id("set any BUDGET free CHARGE 1")
	s.out("set") // it is in debt
	s.says("1", "FILA.BUDGET CREDIT free 13")
	s.says("1", "FILA.ACK set "+s.out("set", "any")[0]+" USED 3")
	s.sums("free", 13, 15, 0)
}

func budgetAmounts(s *speaker) {
	const most = 1<<53 - 1
	s.says("OK", "FILA.BUDGET SET big")
	s.says(strconv.Itoa(most), fmt.Sprint("FILA.BUDGET CREDIT big ", most))
	s.says("INVALID", "FILA.BUDGET CREDIT big 1")
	s.says("ERR", fmt.Sprint("FILA.BUDGET CREDIT big ", most+1))
	s.says("0", fmt.Sprint("FILA.BUDGET CHARGE big ", most))
	s.says(strconv.Itoa(-most), fmt.Sprint("FILA.BUDGET CHARGE big ", most, " FORCE"))
	s.says("INVALID", "FILA.BUDGET CHARGE big 1 FORCE")
	for _, line := range []string{"FILA.BUDGET CREDIT big 0", "FILA.BUDGET CHARGE big -1", "FILA.BUDGET SET big DEBT -1", "FILA.BUDGET SET big LOW x", "FILA.ENQUEUE llm x BUDGET big CHARGE 1000000000001", "FILA.ENQUEUE llm x BUDGET big CHARGE -1"} {
		s.says("ERR", line)
	}
	s.id("llm x BUDGET big CHARGE 1000000000000")
	s.says("1", "FILA.PURGE llm")
	s.says("1", "FILA.BUDGET DEL big")
}

func messageAndBudgets(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE m")
	for _, b := range []string{"tenant", "team", "company", "world", "fifth"} {
		s.says("OK", "FILA.BUDGET SET "+b)
		s.says("10", "FILA.BUDGET CREDIT "+b+" 10")
	}
	four := " BUDGET tenant BUDGET team BUDGET company BUDGET world"
	if got := fmt.Sprint(s.run("FILA.ENQUEUE m x" + four + " BUDGET fifth")); len(got) == 36 {
		s.Error("a message has five budgets")
	}
	id := s.id("m x" + four + " COST 4") // the charge is the cost
	s.has("charge 4", "FILA.GET m "+id)
	if got := fmt.Sprint(kit.Mapped(s.T, s.run("FILA.GET m "+id))["budgets"]); got != "[tenant team company world]" {
		s.Errorf("its budgets are %s", got)
	}
	_, browsed := s.page("FILA.BROWSE m")
	s.fields("charge 4", "FILA.BROWSE", browsed[0])
	s.says("1", "FILA.ACK m "+s.out("m", "x")[0]+" USED 6")
	for _, b := range []string{"tenant", "team", "company", "world"} {
		s.sums(b, 10, 6, 0)
	}
	s.id("m all" + four + " KEY all CHARGE 4")
	s.says("0", "FILA.BUDGET CHARGE company 4")
	s.id("m cheap BUDGET tenant KEY cheap CHARGE 3")
	r := s.out("m", "cheap") // a key that waits holds up no other
	s.sums("team", 10, 6, 0)
	s.says("1", "FILA.ACK m "+r[0]+" USED 0")
	s.says("4", "FILA.BUDGET CREDIT company 4")
	r = s.out("m", "all")
	s.id("m y BUDGET fifth CHARGE 1")
	r = append(r, s.out("m", "y")...)
	s.says("INVALID", "FILA.ACK m "+strings.Join(r, " ")+" USED 1")
	s.says("INVALID", "FILA.BUDGET DEL fifth")
	s.says("2", "FILA.ACK m "+strings.Join(r, " "))
	s.id("m later BUDGET fifth CHARGE 9 DELAY 3600000") // reserves nothing
	s.sums("fifth", 10, 1, 0)
	s.says("1", "FILA.BUDGET DEL fifth")
	s.says("1", "FILA.PURGE m")
	s.says("OK", "FILA.BUDGET SET fifth REFUSE")
	first := s.id("m x DEDUP d BUDGET fifth CHARGE 0")
	if again := s.id("m x DEDUP d BUDGET fifth CHARGE 9"); again != first {
		s.Errorf("the second id is %s, want %s", again, first)
	}
	s.says("1", "FILA.PURGE m")
	s.sums("fifth", 0, 0, 0) // it begins anew
}

func deadLetters(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE d")
	s.says("OK", "FILA.BUDGET SET db")
	s.says("6", "FILA.BUDGET CREDIT db 6")
	s.id("d x BUDGET db CHARGE 6")
	s.has("action dlq", "FILA.NACK d "+s.out("d", "x")[0]+" DEAD USED 2")
	s.sums("db", 6, 2, 0)
	dead := s.out("d.dlq", "x") // nothing waits for credits there, and nothing is charged
	s.sums("db", 6, 2, 0)
	s.says("1", "FILA.RELEASE d.dlq "+dead[0])
	s.run("FILA.REDRIVE d.dlq")
	testkit.Eventually(s.T, "the message is ready", func() bool { return fmt.Sprint(kit.Mapped(s.T, s.run("FILA.STATS d"))["ready"]) == "1" })
	s.out("d")
	s.says("6", "FILA.BUDGET CREDIT db 2")
	s.says("1", "FILA.ACK d "+s.out("d", "x")[0])
	s.sums("db", 8, 8, 0)
	s.id("d held BUDGET db CHARGE 1 TTL 1") // it dies held, and costs nothing
	testkit.Eventually(s.T, "the TTL ends", func() bool { return fmt.Sprint(kit.Mapped(s.T, s.run("FILA.STATS d"))["ttl_expired"]) == "1" })
	s.sums("db", 8, 8, 0)
}

func whatKeysWaitFor(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE w")
	s.says("OK", "FILA.BUDGET SET bought")
	s.says("OK", "FILA.BUDGET SET gone")
	s.says("OK", "FILA.BUDGET SET small REFILL 5 EVERY @monthly MAX 9")
	s.says("OK", "FILA.BUDGET SET monthly REFILL 7 EVERY @monthly")
	s.says("0", "FILA.BUDGET CHARGE monthly 7")
	for _, m := range []string{"bought", "gone", "small", "monthly"} {
		s.id("w x KEY " + m + " BUDGET " + m + " CHARGE " + map[string]string{"small": "10"}[m] + map[bool]string{true: "7"}[m != "small"])
	}
	s.says("1", "FILA.BUDGET DEL gone")
	before, ok := kit.Mapped(s.T, s.run("FILA.STATS"))["keys_without_credit"].(int64)
	if s.out("w"); !ok {
		s.Fatal("no number of keys without credit")
	}
	s.has(fmt.Sprintf("keys_without_credit %d", before+4), "FILA.STATS")
	s.has("waiting 1", "FILA.BUDGET GET bought")
	next := fmt.Sprint(kit.Mapped(s.T, s.run("FILA.BUDGET GET monthly"))["next_at"])
	for key, want := range map[string]string{
		"bought":  `reason 'budget "bought" has 0 credits available, the next message takes 7' available 0 charge 7 ready_at <nil>`,
		"gone":    `reason 'budget "gone" does not exist, FILA.BUDGET SET makes it' charge 7 ready_at <nil>`,
		"small":   `reason 'budget "small" has 5 credits available, the next message takes 10, and refills never bring more than 9 (MAX)' available 5 charge 10 ready_at <nil>`,
		"monthly": `reason 'budget "monthly" has 0 credits available, the next message takes 7' available 0 charge 7 ready_at ` + next,
	} {
		for _, line := range []string{"FILA.KEY GET w " + key, "FILA.EXPLAIN w KEY " + key} {
			m := kit.Mapped(s.T, s.run(line))
			for _, field := range regexp.MustCompile(`(\w+) (?:'([^']*)'|(\S+))`).FindAllStringSubmatch("state no_credit budget "+key+" "+want, -1) {
				// redis-cli writes quotes within a text with a backslash in no protocol's way, so they are left out.
				if got, want := strings.ReplaceAll(fmt.Sprint(m[field[1]]), `"`, ""), strings.ReplaceAll(field[2]+field[3], `"`, ""); got != want {
					s.Errorf("%s: %s is %s, want %s", line, field[1], got, want)
				}
			}
		}
	}
	if _, list := s.page("FILA.KEYS w MATCH sm*"); len(list) != 1 {
		s.Errorf("%v", list)
	} else {
		s.fields("state no_credit budget small", "FILA.KEYS", list[0])
	}
	for _, code := range []string{"errorstat_CREDIT:count=", "errorstat_NOBUDGET:count="} {
		s.run("FILA.BUDGET CHARGE bought 1")
		s.run("FILA.BUDGET CHARGE nosuch 1")
		if got := fmt.Sprint(s.run("INFO errorstats")); !strings.Contains(got, code) {
			s.Errorf("%s is not in %s", code, got)
		}
	}
	s.says("4", "FILA.PURGE w")
}

func refillTable(s *speaker) {
	next := map[string]string{}
	for line, want := range map[string]string{
		`lapse REFILL 100000 EVERY @monthly`:                                      "balance 100000 refill 100000 every @monthly zone UTC max 100000",
		`kept REFILL 100000 EVERY @monthly MAX 300000`:                            "balance 100000 refill 100000 every @monthly max 300000",
		`top REFILL 1000 EVERY "0 0 * * *" TZ Europe/Berlin MAX 9007199254740991`: `balance 1000 refill 1000 every "0 0 * * *" zone Europe/Berlin max 9007199254740991`,
		`each REFILL 5 EVERY "* * * * * *" MAX 9007199254740991`:                  "refill 5",
	} {
		name := spoken(line)[0]
		s.says("OK", "FILA.BUDGET SET "+line)
		s.has(want, "FILA.BUDGET GET "+name)
		next[name] = fmt.Sprint(kit.Mapped(s.T, s.run("FILA.BUDGET GET "+name))["next_at"])
	}
	s.says("OK", "FILA.BUDGET SET lapse REFILL 7 EVERY @monthly") // moves no tick, and fills nothing
	s.has("balance 100000 refill 7 next_at "+next["lapse"], "FILA.BUDGET GET lapse")
	s.says("OK", "FILA.QUEUE CREATE r")
	s.says("OK", "FILA.BUDGET SET owing")
	s.says("-3", "FILA.BUDGET CHARGE owing 3 FORCE")
	s.says("OK", "FILA.BUDGET SET owing REFILL 10 EVERY @monthly") // the debt is paid from it
	s.has("balance 7 credited 10", "FILA.BUDGET GET owing")
	s.says("OK", `FILA.BUDGET SET owing REFILL 10 EVERY "* * * * * *"`)
	s.id("r x BUDGET owing CHARGE 9") // the next tick suffices, and wakes the consumer
	d, err := leased(s.run("FILA.LEASE r BLOCK 20000"))
	if err != nil || len(d) != 1 {
		s.Errorf("%v, %v", d, err)
	}
	before := kit.Mapped(s.T, s.run("FILA.BUDGET GET each"))
	s.restart()
	testkit.Eventually(s.T, "the budget is refilled", func() bool { // it has the ticks of the time in which the broker was down
		now := kit.Mapped(s.T, s.run("FILA.BUDGET GET each"))
		ticks, _ := now["next_at"].(int64)
		first, _ := before["next_at"].(int64)
		credited, _ := now["credited"].(int64)
		then, _ := before["credited"].(int64)
		if credited-then != 5*(ticks-first)/1000 {
			s.Fatalf("%d credits for %d s", credited-then, (ticks-first)/1000)
		}
		return ticks > first
	})
	s.has("next_at "+next["lapse"], "FILA.BUDGET GET lapse")
}

func idsOfMovements(s *speaker) {
	s.says("OK", "FILA.BUDGET SET i1")
	s.says("OK", "FILA.BUDGET SET i2")
	s.says("10", "FILA.BUDGET CREDIT i1 10 ID x")
	s.says("8", "FILA.BUDGET CHARGE i1 2 ID y")
	again := func() {
		s.Helper()
		s.says("10", "FILA.BUDGET CREDIT i1 10 ID x")
		s.says("8", "FILA.BUDGET CHARGE i1 2 ID y")
		s.says("INVALID", "FILA.BUDGET CREDIT i1 11 ID x")
		s.says("INVALID", "FILA.BUDGET CHARGE i1 10 ID x")
		s.sums("i1", 10, 2, 0)
	}
	again()
	s.says("3", "FILA.BUDGET CREDIT i2 3 ID x") // in each budget by itself
	s.says("INVALID", `FILA.BUDGET CREDIT i1 1 ID ""`)
	s.says("TOOBIG", "FILA.BUDGET CREDIT i1 1 ID "+strings.Repeat("x", 513))
	s.says("9", "FILA.BUDGET CREDIT i1 1 ID "+strings.Repeat("x", 512))
	s.says("8", "FILA.BUDGET CHARGE i1 1")
	s.restart()
	s.says("10", "FILA.BUDGET CREDIT i1 10 ID x")
	s.says("INVALID", "FILA.BUDGET CREDIT i1 11 ID x")
	s.sums("i1", 11, 3, 0)
	s.says("1", "FILA.BUDGET DEL i1")
	s.says("OK", "FILA.BUDGET SET i1")
	s.says("4", "FILA.BUDGET CREDIT i1 4 ID x") // ids from before do not count
}

func historyOfABudget(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE h")
	s.says("OK", "FILA.BUDGET SET hb DETAIL REFILL 2 EVERY @monthly")
	s.says("52", "FILA.BUDGET CREDIT hb 50 ID pay NOTE thanks")
	s.says("42", "FILA.BUDGET CHARGE hb 10")
	id := s.id("h x KEY k BUDGET hb CHARGE 5")
	s.says("1", "FILA.ACK h "+s.out("h", "x")[0])
	check := func() {
		s.Helper()
		var got []string
		for cursor := "0"; ; {
			next, list := s.page("FILA.BUDGET HISTORY hb CURSOR " + cursor + " COUNT 2")
			for _, e := range list {
				m := kit.Mapped(s.T, e)
				got = append(got, fmt.Sprint(m["kind"], m["amount"], " ", m["balance"], " ", m["id"], m["note"], m["count"], m["queue"], m["message"], m["key"]))
			}
			if cursor = next; cursor == "0" {
				break
			}
		}
		want := []string{"use-5 37 <nil><nil>1h" + id + "k", "charge-10 42 <nil><nil>0<nil><nil><nil>", "credit50 52 paythanks0<nil><nil><nil>", "refill2 2 <nil><nil>0<nil><nil><nil>"}
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], " ", "")
		}
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], " ", "")
		}
		if !slices.Equal(got, want) {
			s.Errorf("the history is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check()
	s.restart()
	check()
}

func budgetTransactions(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE tq")
	run := func(lines ...string) []any {
		s.Helper()
		var commands [][]string
		for _, line := range lines {
			commands = append(commands, spoken(line))
		}
		list, ok := plain(s.tx(s.T, commands...)).([]any)
		if !ok || len(list) != len(lines) {
			s.Fatalf("%v: %v", lines, list)
		}
		return list
	}
	first := run("FILA.BUDGET SET tb", "FILA.BUDGET CREDIT tb 10 ID a", "FILA.ENQUEUE tq one BUDGET tb CHARGE 4", "FILA.BUDGET CHARGE tb 11", "FILA.BUDGET HISTORY tb")
	if got := fmt.Sprint(first[:2]); got != "[OK 10]" || !strings.Contains(fmt.Sprint(first[3]), "CREDIT") || !strings.Contains(fmt.Sprint(first[4]), "ERR") {
		s.Errorf("%v", first)
	}
	r := s.out("tq", "one")
	s.run("FILA.BUDGET GET tb")
	second := run("FILA.ACK tq "+r[0]+" USED 5", "FILA.ENQUEUE tq two BUDGET tb CHARGE 5", "FILA.BUDGET CHARGE tb 5 ID page")
	if fmt.Sprint(second[0], second[2]) != "1 0" {
		s.Errorf("%v", second)
	}
	s.restart()
	s.sums("tb", 10, 10, 0)
	s.out("tq") // nothing is left
}

func adaptiveForms(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE calls MAXATTEMPTS 0")
	s.says("OK", "FILA.THROTTLE SET p CONCURRENCY 10 ADAPTIVE")
	s.has("concurrency 10 min 1 limit 10 cuts 0", "FILA.THROTTLE GET p")
	s.says("OK", "FILA.THROTTLE SET p CONCURRENCY 10 ADAPTIVE MIN 2")
	for i := range 20 {
		s.id(fmt.Sprintf("calls m%02d KEY k THROTTLE p", i))
	}
	r := s.out("calls", "m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09")
	s.says("1", "FILA.ACK calls "+r[0])
	s.has("limit 10 cuts 0", "FILA.THROTTLE GET p")
	for _, receipt := range r[1:3] { // fails at once: one cut
		s.has("action retry", "FILA.NACK calls "+receipt+" DELAY 3600000")
	}
	s.has("min 2 limit 7 cuts 1", "FILA.THROTTLE GET p")
	if m := kit.Mapped(s.T, s.run("FILA.EXPLAIN calls KEY k")); !strings.Contains(strings.ReplaceAll(fmt.Sprint(m["reason"]), `"`, ""), "throttle p allows 7 of 10 leases at a time now") {
		s.Errorf("%v", m["reason"])
	}
	s.has("action dlq", "FILA.NACK calls "+r[3]+" DEAD")
	s.says("1", "FILA.RELEASE calls "+r[4])
	s.has("min 2 limit 7 cuts 1", "FILA.THROTTLE GET p")
	s.restart()
	s.has("concurrency 10 min 2 limit 10 cuts 0", "FILA.THROTTLE GET p") // a start begins with n
}

// budgetsOfHooks has recurring messages and scripts name budgets.
func budgetsOfHooks(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE hq SIGNALS ON")
	s.says("NOBUDGET", `FILA.CRON SET each hq "* * * * * *" tick BUDGET hooked CHARGE 2`)
	s.says("OK", "FILA.BUDGET SET hooked")
	s.says("OK", `FILA.CRON SET each hq "* * * * * *" tick BUDGET hooked CHARGE 2`)
	cron := kit.Mapped(s.T, s.run("FILA.CRON GET each"))
	if fmt.Sprint(cron["budgets"], cron["charge"]) != "[hooked] 2" {
		s.Errorf("a recurring message of %v, %v", cron["budgets"], cron["charge"])
	}
	testkit.Eventually(s.T, "a message is ready", func() bool { return fmt.Sprint(kit.Mapped(s.T, s.run("FILA.STATS hq"))["ready"]) != "0" })
	s.says("1", "FILA.CRON DEL each")
	s.out("hq") // it is not paid for
	if n, ok := s.run("FILA.PURGE hq").(int64); !ok || n < 1 {
		s.Errorf("purged %d", n)
	}
	script := `function on_enqueue(msg) return { budgets = { 'company', msg.budgets[1] }, charge = msg.charge + 1 } end`
	tried := kit.Mapped(s.T, plain(s.do(s.T, "FILA.SCRIPT", "TEST", "hq", "ON_ENQUEUE", "SOURCE", script, "BUDGET", "hooked", "CHARGE", "4")))
	if fmt.Sprint(tried["budgets"], tried["charge"]) != "[company hooked] 5" {
		s.Errorf("a script decides %v", tried)
	}
	s.do(s.T, "FILA.SCRIPT", "LOAD", "hq", "ON_ENQUEUE", script)
	s.says("7", "FILA.BUDGET CREDIT hooked 7")
	s.id("hq x KEY hk BUDGET hooked CHARGE 4") // a hook fails no command
	s.says("1", "FILA.BUDGET DEL company")     // of the part before
	s.out("hq")
	s.has(`state no_credit budget company charge 5`, "FILA.KEY GET hq hk")
	s.says("OK", "FILA.BUDGET SET company")
	s.says("5", "FILA.BUDGET CREDIT company 5")
	s.restart()
	s.says("1", "FILA.ACK hq "+s.out("hq", "x")[0]+" USED 3")
	s.sums("company", 5, 3, 0)
	s.sums("hooked", 7, 3, 0)
	s.says("OK", "FILA.THROTTLE SET tpm:x RATE 1500 BURST 90000 BY COST")
	s.says("OK", "FILA.THROTTLE SET calls:x CONCURRENCY 50 ADAPTIVE MIN 2")
}
