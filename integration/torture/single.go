package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/history"
	"github.com/faisca/fila/integration/powerloss"
)

// single is one broker as a target.
type single struct {
	*session

	broker *harness.Broker
	disk   *powerloss.Disk // if power cuts are requested, else nil
	fault  diskFault       // nil if the process is ended instead
	loss   powerloss.Loss  // sum of all cuts
	cuts   []history.Crash
}

// close implements target: it ends the broker, in whatever state it is, and its disk.
func (s *single) close() {
	if s.broker != nil {
		_ = s.broker.Kill()
	}
	if s.fault != nil {
		_ = s.fault.Close()
	}
}

// prepare implements target.
func (s *single) prepare(dir string) error {
	home := dir
	if s.by == byFull {
		home = filepath.Join(dir, "small")
		small, err := newSmall(home)
		if err != nil {
			return err
		}
		s.fault = small
	}
	var err error
	s.broker, err = harness.New(s.bin, home, "--storage.sync", s.sync, "--storage.sync_interval_ms", fmt.Sprint(s.interval.Milliseconds()),
		"--storage.lease_lag_ms", fmt.Sprint(s.leaseLag.Milliseconds()), "--storage.mode", "low_space")
	if err != nil {
		return err
	}
	s.shared.addrs = []string{s.broker.Addr()}
	switch s.by {
	case byKill, byFull:
	case byPower, byIOError, byNoSpace:
		disk, err := powerloss.New(dir, filepath.Clean(s.broker.Data()))
		if err != nil {
			return err
		}
		s.broker.SetEnv(disk.Env()...)
		switch s.by {
		case byPower:
			s.disk, disk.Scatter = disk, s.scatter
		case byIOError:
			s.fault = &injected{disk, disk.Break}
		case byNoSpace:
			s.fault = &injected{disk, disk.Fill}
		}
	default:
		return fmt.Errorf("-by %s: no fault of a single broker; see -help", s.by)
	}
	if err := s.start(); err != nil {
		return err
	}
	if err := s.queues(); err != nil {
		return err
	}
	// With lazy syncs the first power cut could take the queues.
	if s.by == byPower && s.sync != "always" {
		if err := s.broker.Stop(); err != nil {
			return err
		}
		return s.start()
	}
	return nil
}

func (s *single) start() error {
	if err := s.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.broker.Ready(ctx)
}

// launch starts the process without waiting until it serves.
func (s *single) launch() error {
	if s.disk != nil {
		if err := s.disk.Begin(); err != nil {
			return err
		}
	}
	if s.fault != nil {
		if err := s.fault.Begin(); err != nil {
			return err
		}
	}
	return s.broker.Start()
}

// harm implements target.
func (s *single) harm() error {
	if s.fault != nil {
		return s.fail()
	}
	return s.crash()
}

// finish implements target.
func (s *single) finish(h *history.History) error {
	h.Crashes = s.cuts
	return nil
}

// report implements target.
func (s *single) report(v *history.Verdict) {
	if s.disk != nil {
		fmt.Printf("the cuts took %d bytes and %d changes of the directory, and tore %d files; %d acknowledged messages went with them, as storage.sync %s allows\n",
			s.loss.Bytes, s.loss.Entries, s.loss.Torn, v.Excused, s.sync)
	}
}

// crash ends the broker, sometimes again during recovery, and starts it.
func (s *single) crash() error {
	cut := history.Crash{At: s.shared.now(), Power: s.by == byPower}
	for again := true; again; {
		if err := s.end(); err != nil {
			return err
		}
		if again = s.chance.IntN(5) == 0; again {
			if err := s.launch(); err != nil {
				return err
			}
			pause(time.Duration(s.chance.IntN(120)) * time.Millisecond)
		}
	}
	if err := s.start(); err != nil {
		return fmt.Errorf("after crash %d: %w", len(s.cuts)+1, err)
	}
	cut.Back = s.shared.now()
	s.cuts = append(s.cuts, cut)
	return nil
}

func (s *single) end() error {
	if err := s.broker.Kill(); err != nil || s.disk == nil {
		return err
	}
	loss, err := s.disk.Cut(s.chance)
	s.loss.Add(loss)
	return err
}
