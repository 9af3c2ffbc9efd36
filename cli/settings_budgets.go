package cli

func budgetSettings(c *Budgets) []setting {
	return []setting{
		{
			name:  "budgets.history_days",
			value: count(&c.HistoryDays, 35, 1, 400),
			doc:   "Days for which the history of [budgets](../explanation/budgets.md) and the ids of `FILA.BUDGET CREDIT` and `CHARGE` are kept. The sums stay exact without them.",
		},
	}
}
