package main

import (
	"context"
	"os"

	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/progress"
)

// side is a broker under one load. Each load has its own broker, so that loads do not share memory.
type side struct {
	*server

	name   string
	load   bench.Load
	rounds []bench.Round
}

// newSide starts a broker for a load. The caller must call end.
func (c *common) newSide(ctx context.Context, bin, name string, o bench.Options, args ...string) (*side, error) {
	s := &side{name: name}
	var err error
	if s.server, err = c.startServer(ctx, bin, args...); err != nil {
		return nil, err
	}
	peer, _, pid, err := bench.Server{Addr: s.Addr()}.Connect(ctx)
	if err != nil {
		s.end()
		return nil, err
	}
	if o.Shape.Queue == "" {
		o.Shape.Queue = benchQueue
	}
	s.load = bench.Load{Peer: peer, PID: pid, Options: o, Watch: watch(name)}
	return s, nil
}

// preparedSide is newSide followed by the creation of the load's queue and backlog.
func (c *common) preparedSide(ctx context.Context, bin, name string, o bench.Options) (*side, error) {
	s, err := c.newSide(ctx, bin, name, o)
	if err != nil {
		return nil, err
	}
	if err := s.load.Prepare(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// round measures once, on the prepared queue.
func (s *side) round(ctx context.Context) error {
	r, err := s.load.Round(ctx, s.name)
	s.rounds = append(s.rounds, r)
	return err
}

// freshRound measures once, on a queue created for the round.
func (s *side) freshRound(ctx context.Context) error {
	rounds, err := s.load.Run(ctx)
	s.rounds = append(s.rounds, rounds...)
	return err
}

// median returns the medians of the rounds.
func (s *side) median() bench.Round {
	return bench.NewReport(s.name, s.Addr(), &s.load.Options, s.rounds).Median
}

// report prints the medians of the rounds as a table row.
func (s *side) report() {
	m := s.median()
	say("| %s | %.0f/s | %.1f µs | %d MiB |", s.name, m.Rate, m.CPU, m.Peak>>20)
}

// watch shows the growth of a backlog, which takes minutes.
func watch(name string) func(stage string, done, total int64, timed bool) {
	var bar *progress.Bar
	return func(stage string, done, total int64, timed bool) {
		if timed || total == 0 {
			return
		}
		if bar == nil {
			bar = progress.New(os.Stderr, name+", "+stage, total)
		}
		bar.Set(done)
		if done >= total {
			bar.Done()
		}
	}
}
