// Tiers runs the tests of the project: quick, test and prove, each a table of phases (phases.go).
//
//	go run ./integration/tiers test
//	go run ./integration/tiers prove fuzz torture
//
// As many phases run at a time as there are lanes. A failing phase does not keep the others from running, and
// is never run again. In the end come the output of what has failed, a table of the phases with their time
// and processor time, and the slowest tests. The whole output of each phase is in .cache/tiers.
//
// A phase of prove that has passed is not run again while the sources are the same, so a run that was
// interrupted goes on where it was.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/faisca/fila/integration/harness"
)

const usage = `usage: tiers [flags] quick|test|check|prove [phase]...

  quick  pure Go: no cgo, no processes
  test   what every change has to pass
  check  the linters, then test
  prove  everything at length

Phases are named as in the table that a run prints; without names, all of the tier run.

`

func main() {
	harness.Main("tiers", func(ctx context.Context) (int, error) {
		kept, err := tiers(ctx, os.Args[1:])
		return harness.Verdict(kept, err)
	})
}

// options are the flags of a run.
type options struct {
	lanes int
	list  bool
	again bool
}

func tiers(ctx context.Context, args []string) (passed bool, err error) {
	var o options
	f := flag.NewFlagSet("tiers", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(f.Output(), usage); f.PrintDefaults() }
	f.IntVar(&o.lanes, "lanes", min(2, runtime.NumCPU()), "phases that run at a time")
	f.BoolVar(&o.list, "list", false, "print the phases and their commands, and run none")
	f.BoolVar(&o.again, "again", false, "run phases of prove that have passed with these sources as well")
	if err := f.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), nil // it is printed
	}
	if f.NArg() == 0 || o.lanes < 1 {
		f.Usage()
		return false, errors.New("name a tier")
	}
	root, err := repository()
	if err != nil {
		return false, err
	}
	p, err := newProject(ctx, root, o.lanes)
	if err != nil {
		return false, err
	}
	all, err := p.tier(ctx, f.Arg(0))
	if err != nil {
		return false, err
	}
	chosen, err := choose(all, f.Args()[1:])
	if err != nil {
		return false, err
	}
	if o.list {
		list(os.Stdout, chosen)
		return true, nil
	}
	if err := enoughDisk(diskNeeded(f.Arg(0)), writesTo(root)...); err != nil {
		return false, err
	}
	r := &run{root: root, tier: f.Arg(0), out: os.Stdout, logs: filepath.Join(root, ".cache", "tiers", f.Arg(0))}
	if r.tier == "prove" {
		if r.memory, err = recall(ctx, root, o.again); err != nil {
			return false, err
		}
	}
	return r.phases(ctx, chosen, o.lanes)
}

// repository returns the root of the sources that the program is run in, a checkout or an archive: the directory above
// that has the module and its main package.
func repository() (string, error) {
	from, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := from; ; dir = filepath.Dir(dir) {
		if isFile(filepath.Join(dir, "go.mod")) && isFile(filepath.Join(dir, "main.go")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not within the sources of Fila: run it from their root", from)
		}
	}
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// choose returns the phases of these names with what they need, in the order of the tier.
func choose(all []phase, names []string) ([]phase, error) {
	if len(names) == 0 {
		return all, nil
	}
	wanted := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		at := slices.IndexFunc(all, func(p phase) bool { return p.name == name })
		if at < 0 {
			return fmt.Errorf("no phase %q: the tier has %s", name, strings.Join(namesOf(all), ", "))
		}
		wanted[name] = true
		for _, needed := range all[at].needs {
			if err := add(needed); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p phase) bool { return !wanted[p.name] }), nil
}

func namesOf(phases []phase) []string {
	var names []string
	for _, p := range phases {
		names = append(names, p.name)
	}
	return names
}
