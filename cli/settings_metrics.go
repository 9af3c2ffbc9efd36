package cli

// metricsSettings are the bounds of what metrics show by name.
func metricsSettings(c *Metrics) []setting {
	const most = 100_000
	return []setting{
		{
			name:  "admin.metrics_queues",
			value: count(&c.Queues, 1000, 0, most),
			doc:   "Queues that have [metrics](metrics.md) by name, those that came first; all others are one together. Each of them has some 30 series.",
		},
		{
			name:  "admin.metrics_keys",
			value: count(&c.Keys, 10, 0, 100),
			doc: "Fairness keys of each of these queues that have metrics by name: the busiest, deepest, oldest and furthest behind, at most 1,000 of all queues. " +
				"A key is often the name of a tenant, which may be personal data in what stores the metrics. 0: none.",
		},
		{
			name:  "admin.metrics_throttles",
			value: count(&c.Throttles, 100, 0, most),
			doc:   "Throttles that have metrics by name: those with most keys waiting. 0: none.",
		},
		{
			name:  "admin.metrics_budgets",
			value: count(&c.Budgets, 100, 0, most),
			doc: "Budgets that have metrics by name: those with most keys waiting, and the oldest. " +
				"A budget often has the name of a customer, which may be personal data in what stores the metrics. 0: none.",
		},
	}
}
