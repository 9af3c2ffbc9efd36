package cli

// metricsSettings are the bounds of what metrics show by name.
func metricsSettings(c *Metrics) []setting {
	const most = 100_000
	return []setting{
		entry("admin.metrics_queues", count(&c.Queues, 1000, 0, most),
			"Queues that have [metrics](metrics.md) by name, those that came first; all others are one together. Each of them has some 30 series."),
		entry("admin.metrics_keys", count(&c.Keys, 10, 0, 100),
			"Fairness keys of each of these queues that have metrics by name: the busiest, deepest, oldest and furthest behind, at most 1,000 of all queues. "+
				"A key is often the name of a tenant, which may be personal data in what stores the metrics. 0: none."),
		entry("admin.metrics_throttles", count(&c.Throttles, 100, 0, most),
			"Throttles and patterns that have metrics by name: those with most keys waiting. Of the throttles of patterns, as many of the busiest have them as well. 0: none."),
		entry("admin.metrics_budgets", count(&c.Budgets, 100, 0, most),
			"Budgets that have metrics by name: those with most keys waiting, and the oldest. "+
				"A budget often has the name of a customer, which may be personal data in what stores the metrics. 0: none."),
	}
}
