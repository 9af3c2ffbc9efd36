package cli

func budgetSettings(c *Budgets) []setting {
	return []setting{
		entry("budgets.history_days", count(&c.HistoryDays, 35, 1, 400),
			"Days for which the history of [budgets](../explanation/budgets.md) and the ids of `FILA.BUDGET CREDIT` and `CHARGE` are kept. The sums stay exact without them."),
	}
}
