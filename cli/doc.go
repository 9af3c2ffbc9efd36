// Package cli is what a person meets before the broker runs: the subcommands of
// the one binary, its configuration and its log.
//
// It knows nothing of queues or connections. What a subcommand does to the
// broker is handed in by package main as a [Program]; what it is told to do
// comes out as one typed [Config].
//
// # Configuration
//
// Every setting is described once, in the table of settings.go: its name,
// default, unit, bounds and meaning. Flags, environment variables, error texts,
// the help, `fila config` and docs/configuration.md are made from that table.
//
// Four layers are applied in order, each over the one before: defaults, one
// file, the environment, flags. A layer may only name settings that exist and
// values that are possible: a misspelt setting that is silently ignored is found
// in production, one that stops the start is found at once.
//
// # Exit codes
//
//	0  done, or stopped by a signal with everything in order
//	1  it could not do what was asked: port taken, store locked, disk refuses
//	2  it was asked the wrong way: unknown command, flag or setting, bad value
//	3  `fila queues apply --dry-run` would change something
package cli
