// Package command compiles a table of commands. A command is described once, by its Spec. Arity, the
// syntax that Scan accepts, usage lines in errors, the rights that a user needs, COMMAND,
// COMMAND DOCS, HELP and redis-compat.md are derived from it.
//
//		[]Spec ── New ──> Table ── Lookup ──> Command ── Input.Scan ──> Input
//
//	  - spec.go declares descriptions; usage.go derives arity and the usage line.
//	  - table.go compiles descriptions into commands and looks them up by name.
//	  - syntax.go compiles the arguments of a command, scan.go checks a command line
//	    against them, input.go gives the command access to its arguments.
//	  - rights.go determines and checks the required rights.
//	  - info.go and docs.go describe commands to clients, describe.go to documents.
//	    check.go finds mistakes in a table.
//
// The package does not know what a command does. Spec, Command and Table have two type parameters: S
// is the session that executes a command, C the call that a command is parsed into. Package commands
// declares both.
//
// Lookup and Scan do not allocate, except for the values of a session's first command, repeated
// options and errors.
package command
