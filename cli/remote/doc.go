// Package remote is the part of the command line that works with a running broker: `fila queues
// list`, `fila enqueue`, `fila work` and so on.
//
// The commands are rows of one table (table.go lists its parts). A row says what is typed, which
// command of the broker is sent, and which fields of the reply a table shows:
//
//	{
//		name: "throttles show", args: "THROTTLE", short: "Show the limits of a throttle and what it holds back",
//		wire: "FILA.THROTTLE GET", shape: fields, missing: "no throttle is named $THROTTLE",
//		examples: []string{...},
//	}
//
// build.go makes a command of cobra of each row, send.go runs it. The few rows that are no single
// command of the broker have a function instead. Help, manual pages, completions and docs/reference/cli.md
// follow from the rows, and a test runs their examples.
//
// # Exit codes
//
//	0  done; an empty list too
//	1  refused, or there is no broker
//	2  asked wrongly
//	3  a named thing is not there, or `fila doctor` has findings
package remote
