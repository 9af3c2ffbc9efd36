// Damage makes stores with the broker, damages each in one way that chance decides, and
// judges what becomes of it: at a start, in fila check and after fila repair.
//
// A store is made with commands one by one, so it is known exactly what is in it when the
// broker is killed. Where each message and each deletion lies in its files is looked up
// before the damage. So is known, too, what can be read after it:
//
//   - a start that is refused names the file; one that is not serves what there was, or
//     answers MISCONF to what it cannot read
//   - a check that finds nothing wrong is right about that
//   - after a repair, every message is there that lies outside the damage, and none whose
//     deletion does; and no more come back than the report has said
//
// The last line is the verdict; the exit code is 1 if something was wrong.
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

// options is what the flags say.
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
	flag.IntVar(&o.each, "each", 25, "of them, how many are copies of the same")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what chance decides")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory, also when all was well")
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
		fmt.Printf("verdict: %d things are wrong\n", wrong)
		return false, nil
	}
	fmt.Println("verdict: every damaged store was refused, reported or served right, and nothing came back whose deletion was readable")
	if o.keep {
		return true, nil
	}
	return true, os.RemoveAll(dir)
}
