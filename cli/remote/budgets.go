package remote

func budgetRows() []row {
	return []row{
		{
			name: "budgets list", short: "List budgets with their sums",
			long: `WAITING are the fairness keys that have come up and that the budget did not cover; fila
explain says what one of them needs. RESERVED is what live leases hold, AVAILABLE the
balance less that. -o json has all fields.`,
			wire: "FILA.BUDGET LIST", shape: pages, columns: "name balance? reserved? available waiting credited? spent low? refill? every? next_at?", none: "no budgets",
			options:  []option{{"match", "MATCH", text, "only budgets that match a `pattern`"}, limit()},
			examples: []string{"fila budgets list", "fila budgets list --match 'tenant-*' -o jsonl"},
		},
		{
			name: "budgets show", args: "BUDGET", short: "Show the settings and sums of a budget",
			wire: "FILA.BUDGET GET", shape: fields, missing: "no budget is named $BUDGET",
			examples: []string{"fila budgets show acme", "fila budgets show acme -o json"},
		},
		{
			name: "budgets set", args: "BUDGET", short: "Create a budget, or set its settings in place of those that it had",
			long: `What is not given gets its default; credits and history stay, so a deployment may repeat
it. A message that names the budget goes out when the budget covers its charge, and is
held until then, or refused with --refuse.

  --refill 100000 --every @monthly                 a monthly plan; unused credits lapse
  --refill 100000 --every @monthly --max 300000    at most three months of them are kept
  --debt 500                                       go on until 500 below zero`,
			wire: "FILA.BUDGET SET", done: "set $BUDGET",
			options: []option{
				{"debt", "DEBT", number, "`n` credits that a charge may take the balance below zero; 0"},
				{"low", "LOW", number, "tell when the balance falls below `n`"},
				{"refuse", "REFUSE", yes, "refuse an enqueue that is not covered, which is held otherwise"},
				{"detail", "DETAIL", yes, "an entry in the history for each settlement of a message"},
				{"refill", "REFILL", number, "add `n` credits at each tick of --every"},
				{"every", "EVERY", text, "a cron `expression`, such as @monthly"},
				{"tz", "TZ", text, "by the clock of a `zone`, such as Europe/Berlin; UTC"},
				{"max", "MAX", number, "refill up to a balance of `n`; that of --refill"},
			},
			examples: []string{"fila budgets set acme --low 200", "fila budgets set daily --refill 1000 --every @daily --tz Europe/Berlin"},
		},
		{
			name: "budgets credit", args: "BUDGET N", short: "Add credits to a budget, and show its balance",
			long: `Messages that wait for these credits go out at once. With --id it may be repeated, as after
a time-out: the same id with the same amount changes nothing.`,
			wire: "FILA.BUDGET CREDIT", shape: value,
			options:  moveOptions(),
			examples: []string{"fila budgets credit acme 1000 --id invoice-17", "fila budgets credit acme 50 --note welcome -o json"},
		},
		{
			name: "budgets charge", args: "BUDGET N", short: "Take credits of a budget, and show its balance",
			long: `For work that is no message. It is refused unless what is available and --debt of the budget
cover it.`,
			wire: "FILA.BUDGET CHARGE", shape: value,
			options:  append(moveOptions(), option{"force", "FORCE", yes, "also if the budget does not cover it"}),
			examples: []string{"fila budgets charge acme 5 --id page-4711", "fila budgets charge acme 5 --force"},
		},
		{
			name: "budgets history", args: "BUDGET", short: "List what has moved a budget, the newest first",
			long: `The settlements of messages in a minute share a line with their COUNT, unless the budget is
set with --detail.`,
			wire: "FILA.BUDGET HISTORY", shape: pages, columns: "at kind amount balance count id note queue key", none: "nothing has moved $BUDGET",
			options:  []option{limit()},
			examples: []string{"fila budgets history acme", "fila budgets history acme --limit 20 -o jsonl"},
		},
		{
			name: "budgets delete", args: "BUDGET", short: "Delete a budget with its credits",
			wire: "FILA.BUDGET DEL", shape: count, done: "deleted $BUDGET", missing: "no budget is named $BUDGET",
			ask:      "Delete the budget $BUDGET with its credits?",
			examples: []string{"fila budgets delete acme --yes", "fila budgets delete acme -y -o json"},
		},
	}
}

// moveOptions are the options of a credit and of a charge.
func moveOptions() []option {
	return []option{
		{"id", "ID", text, "once under this `id`: a second time changes nothing"},
		{"note", "NOTE", text, "a `text` that the history shows"},
	}
}
