// Damage creates stores with the broker, damages each in one random way, and judges the effect on a
// start, on fila check and on fila repair.
//
// A store is written by one client with one command at a time, so its contents are known exactly
// when the broker is killed. The places of all messages and deletions in its files are located
// before the damage. Hence it is known, too, what remains readable:
//
//   - A start that fails names the file. One that succeeds serves all messages, or
//     replies MISCONF for those that it cannot read.
//   - A check reports no damage only if there is none.
//   - A repair keeps every message stored outside the damage and no message whose
//     deletion is stored outside it. It brings back no more deleted messages than
//     its report states.
//
// The last line is the verdict; the exit code is 1 if a rule was violated.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// options are the values of the flags.
type options struct {
	bin  string
	n    int
	each int
	seed uint64
	keep bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.IntVar(&o.n, "n", 200, "damaged stores")
	flag.IntVar(&o.each, "each", 25, "number of damaged copies made of each store")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "random seed")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory even after a successful run")
	flag.Parse()
	harness.Main("damage", func(ctx context.Context) (int, error) { return harness.Verdict(run(ctx, o)) })
}

func run(ctx context.Context, o options) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "fila-damage-")
	if err != nil {
		return false, err
	}
	fmt.Printf("seed %d, %d damaged stores below %s\n", o.seed, o.n, dir)
	rng := rand.New(rand.NewPCG(o.seed, 0))
	tally, wrong := map[string]int{}, 0
	var made *original
	for n := range o.n {
		if n%max(o.each, 1) == 0 {
			if made, err = makeStore(ctx, o.bin, filepath.Join(dir, fmt.Sprint("original-", n)), rng); err != nil {
				return false, err
			}
		}
		c := &damagedCase{bin: o.bin, from: made, dir: filepath.Join(dir, fmt.Sprint("case-", n)), killed: rng.IntN(4) == 0, killAfter: time.Duration(rng.IntN(80)) * time.Millisecond}
		if c.harm, err = chooseHarm(made, rng); err != nil {
			return false, err
		}
		if err := c.judge(ctx); err != nil {
			return false, fmt.Errorf("case %d, %s: %w", n, &c.harm, err)
		}
		tally[c.outcome]++
		for _, w := range c.wrong {
			wrong++
			fmt.Printf("WRONG case %d, %s: %s\n", n, &c.harm, w)
		}
		if len(c.wrong) == 0 && !o.keep {
			if err := os.RemoveAll(c.dir); err != nil {
				return false, err
			}
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	for _, what := range []string{refusedAtStart, servedRight, servedReported, servedAsAfterACrash} {
		fmt.Printf("%4d %s\n", tally[what], what)
	}
	if wrong > 0 {
		fmt.Printf("verdict: %d violations\n", wrong)
		return false, nil
	}
	fmt.Println("verdict: every damaged store was refused, reported or served correctly, and no message with a readable deletion came back")
	if o.keep {
		return true, nil
	}
	return true, os.RemoveAll(dir)
}
