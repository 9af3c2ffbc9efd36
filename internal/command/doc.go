// Package command is the machinery of a table of commands. A command is
// described once, by its Spec. What the description says is what happens: arity,
// the syntax that Scan accepts, the usage line of a refusal, the rights that a
// user needs, COMMAND, COMMAND DOCS, HELP and redis-compat.md are all computed
// from it.
//
//		[]Spec ── New ──> Table ── Lookup ──> Command ── Input.Scan ──> Input
//
//	  - spec.go has the words of a description, usage.go what follows from them:
//	    arity and the usage line.
//	  - table.go compiles descriptions into commands, and finds them by name.
//	  - syntax.go places the arguments of a command, scan.go checks what a client
//	    has sent against that, input.go gives the arguments to the command.
//	  - rights.go says what a user needs, and refuses what it lacks.
//	  - info.go and docs.go describe commands to clients, describe.go to documents,
//	    check.go finds mistakes in a table.
//
// The package does not know what a command does. Spec, Command and Table have
// two type parameters for that: S is the session that executes a command, C the
// call that a command becomes. Package commands has both.
//
// Neither Lookup nor Scan allocates memory, but for the values of the first
// command of a session, for options that repeat, and for refusals.
package command
