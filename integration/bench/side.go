package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/faisca/fila/integration/harness"
)

// common are the flags of every benchmark.
type common struct{ bin, dir, sync string }

// server is a broker with its own directory below common.dir. end stops the broker and removes the
// directory.
type server struct {
	*harness.Broker

	root string
}

// prepareServer creates a server without starting it.
func (c *common) prepareServer(bin string, args ...string) (*server, error) {
	root, err := os.MkdirTemp(c.dir, "fila-bench-")
	if err != nil {
		return nil, err
	}
	b, err := harness.New(bin, root, append([]string{"--storage.sync", c.sync}, args...)...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(root))
	}
	return &server{Broker: b, root: root}, nil
}

// startServer creates a server and waits until it is ready.
func (c *common) startServer(ctx context.Context, bin string, args ...string) (*server, error) {
	s, err := c.prepareServer(bin, args...)
	if err != nil {
		return nil, err
	}
	if err := s.serve(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// serve starts the process and waits until it is ready.
func (s *server) serve(ctx context.Context) error {
	if err := s.Start(); err != nil {
		return err
	}
	return s.Ready(ctx)
}

// end kills the process and removes its directory. On nil it does nothing.
func (s *server) end() {
	if s == nil {
		return
	}
	_ = s.Kill() // its directory is removed anyway
	_ = os.RemoveAll(s.root)
}

// endAll ends servers, or types that embed one.
func endAll[S interface{ end() }](all []S) {
	for _, s := range all {
		s.end()
	}
}

// chosen returns those that -only names, in its order; all of them if it is empty.
func chosen[T any](only string, all []T, name func(T) string) ([]T, error) {
	if only == "" {
		return all, nil
	}
	var some []T
	for word := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == word })
		if i < 0 {
			return nil, fmt.Errorf("-only has no %q, see -help", word)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// inTurns measures every side in every round. The order alternates between rounds, because the
// machine's speed varies over time.
func inTurns[S any](rounds int, sides []S, measure func(S) error) error {
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: want at least one", rounds)
	}
	for round := range rounds {
		order := slices.Clone(sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			if err := measure(s); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func percent(x float64) string { return fmt.Sprintf("%+.1f %%", x) }
