//go:build !cgo

package broker

import "github.com/faisca/fila/cli"

func check(string, cli.Progress) (cli.CheckReport, error) {
	return cli.CheckReport{}, errNoRocks()
}

func repair(string, cli.Progress) (cli.RepairReport, error) {
	return cli.RepairReport{}, errNoRocks()
}

func restore(string, string, cli.Progress) (cli.CheckReport, error) {
	return cli.CheckReport{}, errNoRocks()
}
