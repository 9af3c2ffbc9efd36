package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/faisca/fila/internal/bench"
)

// beanstalk is a beanstalkd. Its commands take one job each, so a batch of puts, reserves or
// deletes is one write of several commands.
type beanstalk struct {
	addr  string
	shape bench.Shape
	noise bench.Noise
}

func (*beanstalk) Name() string { return "beanstalkd" }

func (b *beanstalk) Prepare(_ context.Context, s bench.Shape) error {
	b.shape, b.noise = s, bench.NewNoise(s.Payload)
	return nil
}

// Clean deletes the remaining jobs: beanstalkd cannot drop a tube.
func (b *beanstalk) Clean(ctx context.Context) error {
	s, err := b.Connect(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	c := s.(*stalk)
	for {
		n, err := c.reserve(1000, 0)
		if err != nil || n == 0 {
			return err
		}
		if err := c.Ack(); err != nil {
			return err
		}
	}
}

func (b *beanstalk) Connect(ctx context.Context) (bench.Session, error) {
	c, err := bench.Dial(ctx, b.addr)
	if err != nil {
		return nil, err
	}
	s := &stalk{Conn: c, noise: b.noise, size: b.shape.Payload}
	fmt.Fprintf(c, "use %s\r\nwatch %s\r\nignore default\r\n", b.shape.Queue, b.shape.Queue)
	if err := c.Flush(); err != nil {
		return nil, err
	}
	for range 3 {
		if _, err := c.Line(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

type stalk struct {
	*bench.Conn
	noise bench.Noise
	size  int
	at    uint64
	out   []byte
	taken []uint64
}

func (s *stalk) Enqueue(n int) error {
	s.out = s.out[:0]
	for range n {
		s.at++
		s.out = append(strconv.AppendInt(append(s.out, "put 0 0 3600 "...), int64(s.size), 10), '\r', '\n')
		s.out = append(append(s.out, s.noise.Payload(s.at, s.size)...), '\r', '\n')
	}
	return s.all(n, "INSERTED ")
}

// all sends the buffered commands and reads n lines.
func (s *stalk) all(n int, want string) error {
	if _, err := s.Write(s.out); err != nil {
		return err
	}
	if err := s.Flush(); err != nil {
		return err
	}
	for range n {
		line, err := s.Line()
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(line, []byte(want)) {
			return fmt.Errorf("unexpected reply of beanstalkd: %q", line)
		}
	}
	return nil
}

func (s *stalk) Lease(n int) error {
	for len(s.taken) < n {
		if _, err := s.reserve(n-len(s.taken), 5); err != nil {
			return err
		}
	}
	return nil
}

// reserve takes up to n jobs and waits up to seconds for each.
func (s *stalk) reserve(n, seconds int) (got int, err error) {
	for range n {
		fmt.Fprintf(s, "reserve-with-timeout %d\r\n", seconds)
	}
	if err := s.Flush(); err != nil {
		return 0, err
	}
	for range n {
		line, err := s.Line()
		if err != nil {
			return got, err
		}
		if string(line) == "TIMED_OUT" {
			continue
		}
		fields := bytes.Fields(line)
		if len(fields) != 3 || string(fields[0]) != "RESERVED" {
			return got, fmt.Errorf("unexpected reply of beanstalkd: %q", line)
		}
		id, err := strconv.ParseUint(string(fields[1]), 10, 64)
		if err != nil {
			return got, err
		}
		size, err := strconv.Atoi(string(fields[2]))
		if err != nil {
			return got, err
		}
		if _, err := s.Bytes(size); err != nil {
			return got, err
		}
		s.taken = append(s.taken, id)
		got++
	}
	return got, nil
}

func (s *stalk) Ack() error {
	s.out = s.out[:0]
	for _, id := range s.taken {
		s.out = append(strconv.AppendUint(append(s.out, "delete "...), id, 10), '\r', '\n')
	}
	n := len(s.taken)
	s.taken = s.taken[:0]
	return s.all(n, "DELETED")
}
