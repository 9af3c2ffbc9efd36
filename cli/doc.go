// Package cli is the command line of the binary: its subcommands, its configuration and its log.
//
// It does not depend on queues or connections. The effects of subcommands are passed in by package
// main as a [Program]; the result of parsing is one typed [Config].
//
// # Configuration
//
// Every setting is described once, in the table of settings.go: its name, default, unit, bounds and
// meaning. Flags, environment variables, error texts, the help, `fila config` and
// docs/reference/configuration.md are derived from that table.
//
// Four layers are applied in order, later ones overriding earlier ones: defaults, one file, the
// environment, flags. Unknown settings and invalid values are errors in every layer: a misspelt
// setting that stops the start is found immediately, one that is ignored only in production.
//
// # Exit codes
//
//	0  success, or stopped by a signal without errors
//	1  failure: port in use, store locked, disk error
//	2  usage error: unknown command, flag or setting, invalid value
//	3  `fila queues plan` found changes
package cli
