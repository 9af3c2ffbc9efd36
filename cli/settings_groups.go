package cli

func groupSettings(c *Groups) []setting {
	return []setting{
		entry("groups.keep_ms", millis(&c.Keep, day, 1, 365*day),
			"How long a [group](../how-to/groups.md) is known after its end: `FILA.GROUP GET` shows it, and its name is not free."),
	}
}
