package remote

func groupRows() []row {
	return []row{
		{
			name: "groups list", short: "List groups that have not ended, with the numbers of their members",
			long: `MEMBERS is the sum of those that are pending, done, dead and cancelled. A cancelled group is
listed while members of it are leased. fila groups show finds one that has ended.`,
			wire: "FILA.GROUP LIST", shape: pages, columns: "name state members pending done dead cancelled opened_at", none: "no groups",
			options:  []option{{"match", "MATCH", text, "only groups that match a `pattern`"}, limit()},
			examples: []string{"fila groups list", "fila groups list --match 'import-*' -o jsonl"},
		},
		{
			name: "groups show", args: "GROUP", short: "Show the state of a group and the numbers of its members",
			wire: "FILA.GROUP GET", shape: fields, missing: "no group is named $GROUP",
			examples: []string{"fila groups show import-7", "fila groups show import-7 -o json"},
		},
		{
			name: "groups open", args: "GROUP QUEUE PAYLOAD", short: "Open a group, whose message is enqueued when all of its members have ended",
			long: `Members are enqueued with --group, and are pending until they are acked, dead or cancelled.
The group ends once it is sealed and none of them is pending. Prints 1, or 0 if there is a
group of that name, which stays as it is.

  fila groups open import-7 reports summary
  seq 1000 | fila enqueue pages --lines --group import-7
  fila groups seal import-7`,
			wire: "FILA.GROUP OPEN", shape: value,
			options: append(contentOptions(),
				option{"when", "WHEN", text, "`which` ends of a member count: ended, all of them, which is the default; or done, acks alone"},
				option{"expire", "EXPIRE", millis, "cancel the group if it has not ended after a `duration`"},
			),
			examples: []string{"fila groups open import-9 mails summary --header kind=import", "fila groups open import-9 mails summary --when done --expire 24h"},
		},
		{
			name: "groups seal", args: "GROUP", short: "Let a group take no more members, and print how many are pending",
			wire: "FILA.GROUP SEAL", shape: count, done: "sealed $GROUP, %d pending",
			examples: []string{"fila groups seal import-7", "fila groups seal import-7 -o json"},
		},
		{
			name: "groups cancel", args: "GROUP", short: "Cancel a group: its message, and each member that is not leased",
			long: `From then on none of them is delivered. What is leased ends as it would, but a failure is not
retried.`,
			wire: "FILA.GROUP CANCEL", shape: count, done: "cancelled $GROUP", missing: "$GROUP has ended already",
			ask:      "Cancel the group $GROUP with all of its members?",
			examples: []string{"fila groups cancel import-8 --yes", "fila groups cancel import-9 -y -o json"},
		},
	}
}
