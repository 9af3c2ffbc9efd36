package commands

import (
	"slices"
	"strconv"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/resp"
)

func budget() Spec {
	return container("FILA.BUDGET", "fila", "0.1.0", "the commands that manage budgets of prepaid credits", budgetCharge(), budgetCredit(), budgetDel(), budgetGet(), budgetHistory(), budgetList(), budgetSet())
}

func budgetSet() Spec {
	return Spec{
		Name: "SET", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "status",
		Summary: "Creates a budget, or replaces the settings of one; those that are not given get their defaults. The sums stay, so a deployment may repeat it. " +
			"DEBT is how far below zero a charge may take what is available (0). LOW emits the event budget_low when the balance falls below it, see docs/reference/events.md. " +
			"REFUSE refuses with CREDIT an enqueue that is not covered now, which is held otherwise. DETAIL gives each settlement of a message an entry of its own in the history. " +
			"REFILL adds n at each tick of EVERY, a cron expression in the time zone TZ (UTC), as far as the balance stays within MAX (n); a budget that had none is filled at once. See docs/explanation/budgets.md.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Args: []Arg{
			{Name: "name", Type: String},
			{Name: "n", Type: Integer, Token: "DEBT", Optional: true, Max: credit.Max},
			{Name: "n", Type: Integer, Token: "LOW", Optional: true, Max: credit.Max},
			{Name: "refuse", Type: PureToken, Token: "REFUSE", Optional: true},
			{Name: "detail", Type: PureToken, Token: "DETAIL", Optional: true},
			{Name: "n", Type: Integer, Token: "REFILL", Optional: true, Min: 1, Max: credit.Max},
			{Name: "expression", Type: String, Token: "EVERY", Optional: true},
			{Name: "zone", Type: String, Token: "TZ", Optional: true},
			{Name: "n", Type: Integer, Token: "MAX", Optional: true, Min: 1, Max: credit.Max},
		},
		Examples: []Example{
			{"FILA.BUDGET SET acme LOW 200", "OK"},
			{"FILA.BUDGET SET daily REFILL 1000 EVERY @daily TZ Europe/Berlin MAX 3000", "OK"},
		},
		Parse: parseBudgetSet,
	}
}

func parseBudgetSet(_ *Session, in *input) (call, error) {
	name, options := in.Text("name"), engine.BudgetOptions{Debt: in.Integer("debt", 0), Refuse: in.Has("refuse"), Detail: in.Has("detail")}
	set := answerOK(func(tx *engine.Tx) error { return tx.SetBudget(name, &options) })
	if in.Has("low") {
		low := in.Integer("low", 0)
		options.Low = &low
	}
	if !in.Has("refill") {
		if slices.ContainsFunc([]string{"every", "tz", "max"}, in.Has) {
			return nil, command.Refuse("ERR", "EVERY, TZ and MAX go with REFILL, usage: "+in.Cmd.UsageLine())
		}
		return set, nil
	}
	if !in.Has("every") {
		return nil, command.Refuse("ERR", "REFILL needs EVERY with a cron expression, such as EVERY @monthly, usage: "+in.Cmd.UsageLine())
	}
	if err := in.Filled("tz", "TZ", "a refill without TZ goes by UTC"); err != nil {
		return nil, err
	}
	n := in.Integer("refill", 0)
	var err error
	options.Refill, err = engine.NewRefill(n, in.Text("every"), in.Text("tz"), in.Integer("max", n))
	return set, err
}

// moveArgs are the arguments of a movement.
func moveArgs(more ...Arg) []Arg {
	return append([]Arg{
		{Name: "name", Type: String},
		{Name: "n", Type: Integer, Min: 1, Max: credit.Max},
		{Name: "id", Type: String, Token: "ID", Optional: true},
		{Name: "text", Type: String, Token: "NOTE", Optional: true},
	}, more...)
}

func budgetCredit() Spec {
	return Spec{
		Name: "CREDIT", Group: "fila", Since: "0.1.0", Complexity: "O(1); with ID O(N) off-loop where N is budgets.history_days", Returns: "integer",
		Summary: "Adds n credits to a budget and returns its balance. ID does it once: the same id with the same amount changes nothing and returns the balance of the first time. NOTE is shown in the history.",
		Flags:   []string{"write", "denyoom"},
		ACL:     []string{"admin"},
		Args:    moveArgs(),
		Examples: []Example{
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.BUDGET CREDIT acme 1000 ID invoice-17", "(integer) 1000"},
			{"FILA.BUDGET CREDIT acme 1000 ID invoice-17", "(integer) 1000"},
		},
		Tiny:  true,
		Parse: func(_ *Session, in *input) (call, error) { return parseMove(in, false) },
	}
}

func budgetCharge() Spec {
	return Spec{
		Name: "CHARGE", Group: "fila", Since: "0.1.0", Complexity: "O(1); with ID O(N) off-loop where N is budgets.history_days", Returns: "integer",
		Summary: "Takes n credits of a budget and returns its balance: for work that is no message. It is refused with CREDIT unless what is available and DEBT cover it; FORCE takes it all the same. " +
			"ID does it once, as that of FILA.BUDGET CREDIT does.",
		Flags: []string{"write"},
		ACL:   []string{"admin"},
		Args:  moveArgs(Arg{Name: "force", Type: PureToken, Token: "FORCE", Optional: true}),
		Examples: []Example{
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.BUDGET CREDIT acme 1000", "(integer) 1000"},
			{"FILA.BUDGET CHARGE acme 150 ID page-4711 NOTE search", "(integer) 850"},
		},
		Tiny:  true,
		Parse: func(_ *Session, in *input) (call, error) { return parseMove(in, true) },
	}
}

func parseMove(in *input, charge bool) (call, error) {
	if err := in.Filled("id", "ID", "leave it out to move the budget each time"); err != nil {
		return nil, err
	}
	return &moveCall{req: engine.BudgetMove{
		Name: in.Text("name"), Amount: in.Integer("n", 0), Charge: charge, Force: charge && in.Has("force"), ID: string(in.Bytes("id")), Note: string(in.Bytes("note")),
	}}, nil
}

type moveCall struct {
	req     engine.BudgetMove
	balance int64
}

// Prepare looks the id up on the connection.
func (c *moveCall) Prepare(s *Session) error { return s.engine().PrepareMove(&c.req) }

// Preflight implements engine.Preflighter.
func (c *moveCall) Preflight(tx *engine.Tx) error { return tx.PreflightMove(&c.req) }

// Apply implements engine.Call.
func (c *moveCall) Apply(tx *engine.Tx) (err error) {
	c.balance, err = tx.MoveBudget(&c.req)
	return err
}

// Render writes the balance.
func (c *moveCall) Render(_ *Handler, w *resp.Writer) error {
	w.Int(c.balance)
	return nil
}

func budgetDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of budgets", Returns: "integer",
		Summary:  "Deletes a budget. Returns 1, or 0 if there was none. A later one of that name starts empty: history and ids from before do not count for it.",
		Flags:    []string{"write"},
		ACL:      []string{"admin"},
		Args:     []Arg{{Name: "name", Type: String}},
		Examples: []Example{{"FILA.BUDGET DEL acme", "(integer) 0"}},
		Parse: func(_ *Session, in *input) (call, error) {
			name := in.Text("name")
			return answerBool(func(tx *engine.Tx) (bool, error) { return tx.DeleteBudget(name) }), nil
		},
	}
}

func budgetGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1); after a long time O(N) where N is the number of days with ticks of the refill", Returns: "map or nil",
		Summary: "Returns the settings and sums of a budget; nil if there is none.",
		Flags:   []string{"readonly"},
		Reply: "A map: " + budgetFields(&engine.BudgetInfo{}).names() + ". balance is credited less spent, reserved what live leases hold, available the balance less that. " +
			"waiting are fairness keys that have come up and that it did not cover, see docs/explanation/budgets.md. low, refill, every, zone, max and next_at are nil if not set; next_at is the next tick of the refill, nil too where refill_error says why there is none: its zone is gone.",
		Args: []Arg{{Name: "name", Type: String}},
		Examples: []Example{
			{"FILA.BUDGET GET acme", "(nil)"},
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.BUDGET GET acme", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			name := in.Text("name")
			return answerMapOrNil(func(tx *engine.Tx) (engine.BudgetInfo, bool) { return tx.Budget(name) }, budgetFields), nil
		},
	}
}

func budgetFields(b *engine.BudgetInfo) *fields {
	f := newFields()
	f.text("name", b.Name)
	f.number("balance", b.Balance)
	f.number("reserved", b.Reserved)
	f.number("available", b.Available)
	f.number("credited", b.Credited)
	f.number("spent", b.Spent)
	f.number("debt", b.Debt)
	if b.Low != nil {
		f.number("low", *b.Low)
	} else {
		f.optional("low", "")
	}
	f.flag("refuse", b.Refuse)
	f.flag("detail", b.Detail)
	f.limit("refill", uint64(b.Refill))
	f.optional("every", b.Expression)
	if zone := b.Zone; zone == "" && b.Refill > 0 {
		f.text("zone", "UTC")
	} else {
		f.optional("zone", zone)
	}
	f.limit("max", uint64(b.Max))
	f.at("next_at", b.NextAt)
	f.number("waiting", b.Waiting)
	f.at("created_at", b.CreatedAt)
	f.optional("refill_error", b.RefillError)
	return f
}

func budgetList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT, in slices", Returns: pageOfMaps,
		Summary: "Returns the budgets, a page at a time.",
		Flags:   []string{"readonly"},
		Reply:   pageReply + "A budget is a map as in FILA.BUDGET GET.",
		Args:    append([]Arg{}, pageOptions()...),
		Examples: []Example{
			{"FILA.BUDGET LIST", "1) \"0\"\n2) (empty array)"},
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.BUDGET LIST MATCH ac* COUNT 100", "..."},
		},
		Room:   pageOf[engine.BudgetInfo](1, tinyRoom),
		Memory: "1,300 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			p := parsePage(in)
			req := engine.BudgetList{Cursor: p.cursor, Count: p.count, Match: p.match}
			return answerPage(func(tx *engine.Tx) (uint64, []engine.BudgetInfo, error) { return tx.Budgets(&req) }, budgetFields), nil
		},
	}
}

func budgetHistory() Spec {
	return Spec{
		Name: "HISTORY", Group: "fila", Since: "0.1.0", Complexity: "O(N+M) off-loop where N is COUNT and M budgets.history_days", Returns: pageOfMaps,
		Summary: "Returns what has moved a budget, the newest first, a page at a time. Entries are kept for budgets.history_days, then dropped with their whole day. It is refused in a transaction.",
		Flags:   []string{"readonly"},
		Reply: "An array: the next cursor, 0 at the end, and an array of maps: " + entryFields(&ledger.Entry{}).names() + ". kind is credit, charge, refill or use, of which count is the number of messages; amount is negative for what went out; " +
			"balance is that after it; id and note are nil if not given; queue, message and key are those of a settlement with DETAIL, nil if the user has no right to the queue. The cursor holds while new entries come.",
		Args: []Arg{
			{Name: "name", Type: String},
			{Name: "c", Type: Integer, Token: "CURSOR", Optional: true},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
		},
		Examples: []Example{
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.BUDGET HISTORY acme", "1) \"0\"\n2) (empty array)"},
			{"FILA.BUDGET CREDIT acme 1000 NOTE welcome", "(integer) 1000"},
			{"FILA.BUDGET HISTORY acme CURSOR 0 COUNT 100", "..."},
		},
		Room: func(_ *Session, in *input) int {
			return int(in.Integer("count", pageCount)) * (sizeOf[ledger.Entry]() + engine.MoveIDMax + engine.MoveNoteMax + tinyRoom)
		},
		Memory: "1,700 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			return &historyCall{user: in.User, req: engine.BudgetHistory{Name: in.Text("name"), Before: in.Integer("cursor", 0), Count: int(in.Integer("count", pageCount))}}, nil
		},
	}
}

type historyCall struct {
	user *acl.User // of the caller
	req  engine.BudgetHistory
	next int64
	list []ledger.Entry
}

// Apply implements engine.Call.
func (c *historyCall) Apply(tx *engine.Tx) (err error) {
	c.next, c.list, err = tx.BudgetHistory(&c.req)
	return err
}

// Render writes the next cursor and the entries.
func (c *historyCall) Render(_ *Handler, w *resp.Writer) error {
	w.Array(2)
	w.BulkString(strconv.FormatInt(c.next, 10))
	for i := range c.list {
		if e := &c.list[i]; e.Queue != "" && !c.user.May(acl.Look, e.Queue) {
			e.Queue, e.Message, e.Key = "", "", ""
		}
	}
	writeEach(w, len(c.list), func(i int) *fields { return entryFields(&c.list[i]) })
	return nil
}

func entryFields(e *ledger.Entry) *fields {
	var f fields
	f.at("at", time.Unix(0, e.At))
	f.text("kind", ledger.Kind(e.Kind).String())
	f.number("amount", e.Amount)
	f.number("balance", e.Balance)
	f.optional("id", e.ID)
	f.optional("note", e.Note)
	f.number("count", e.Count)
	f.optional("queue", e.Queue)
	if len(e.Message) == len(engine.ID{}) {
		f.text("message", engine.ID([]byte(e.Message)).String())
	} else {
		f.optional("message", "")
	}
	f.optional("key", e.Key)
	return &f
}
