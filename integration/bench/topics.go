package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// This file measures what topics, ordered queues and results cost, each time beside a load without
// them, in turns:
//
//	publish  a message for several queues, by FILA.PUBLISH and by a pipeline with an enqueue for each
//	order    the cycle of an ordered queue and of another one, with many keys
//	plain    the cycle of a plain queue, in a broker where other queues are bound to topics, an ordered
//	         queue has messages out, and clients wait for results, and in one without these

// topicBench holds the flags of the benchmark.
type topicBench struct {
	*common

	only    string
	rounds  int
	time    time.Duration
	queues  int
	payload int
	conns   int
	keys    int
	others  int
}

func prepareTopics(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &topicBench{common: c}
	flags.StringVar(&o.only, "only", "publish,order,plain", "`comparisons` to make, separated by commas")
	flags.IntVar(&o.rounds, "rounds", 7, "`rounds` of each side")
	flags.DurationVar(&o.time, "time", 4*time.Second, "`duration` of a round")
	flags.IntVar(&o.queues, "queues", 10, "`queues` that a publish reaches")
	flags.IntVar(&o.payload, "payload", 4096, "`bytes` of a message that is published")
	flags.IntVar(&o.conns, "conns", 16, "`connections` that publish")
	flags.IntVar(&o.keys, "keys", 10_000, "number of `keys` of the ordered queue")
	flags.IntVar(&o.others, "others", 1000, "`number` of bindings, messages out and waiting clients of the broker that has them")
	return o.run
}

func (o *topicBench) run(ctx context.Context) error {
	all := map[string]func(context.Context) error{"publish": o.publish, "order": o.order, "plain": o.plain}
	say("| load | messages | CPU each | memory |\n|---|---|---|---|")
	for name := range strings.SplitSeq(o.only, ",") {
		compare, known := all[name]
		if !known {
			return fmt.Errorf("no comparison is named %q", name)
		}
		if err := compare(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// ratios measures two sides in turns and prints the medians of the rounds' ratios.
func (o *topicBench) ratios(what string, sides []*side, measure func(*side) error) error {
	if err := inTurns(o.rounds, sides, measure); err != nil {
		return err
	}
	for _, s := range sides {
		s.report()
	}
	of := func(figure func(*bench.Round) float64) float64 { return 1 + changed(sides, figure)/100 }
	say("%s: %.2f of the rate, %.2f of the CPU (medians of the rounds' ratios)", what,
		of(func(r *bench.Round) float64 { return r.Rate }), of(func(r *bench.Round) float64 { return r.CPU }))
	return nil
}

// publish compares a publish with as many enqueues in one pipeline.
func (o *topicBench) publish(ctx context.Context) error {
	var sides []*side
	defer func() { endAll(sides) }()
	for _, one := range []bool{false, true} {
		name := fmt.Sprintf("%d enqueues of %d bytes", o.queues, o.payload)
		if one {
			name = fmt.Sprintf("a publish of %d bytes to %d queues", o.payload, o.queues)
		}
		s, err := o.newSide(ctx, o.bin, name, bench.Options{
			Workload: bench.Enqueue, Conns: o.conns, Pipeline: o.queues, Duration: o.time, Warmup: time.Second / 2, Rounds: 1, Shape: bench.Shape{Payload: o.payload},
		})
		if err != nil {
			return err
		}
		s.load.Peer = &fanOut{addr: s.Addr(), queues: o.queues, published: one}
		sides = append(sides, s)
	}
	return o.ratios("one publish", sides, func(s *side) error { return s.freshRound(ctx) })
}

// order compares an ordered queue with another one.
func (o *topicBench) order(ctx context.Context) error {
	var sides []*side
	defer func() { endAll(sides) }()
	for i, name := range []string{"a queue", "an ordered queue"} {
		load := cycleOf(64, 16, o.time, o.keys)
		load.Shape.Ordered = i == 1
		s, err := o.newSide(ctx, o.bin, fmt.Sprintf("%s with %d keys", name, o.keys), load)
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	return o.ratios("ordered", sides, func(s *side) error { return s.freshRound(ctx) })
}

// plain compares a queue in a broker where others use topics, order and results with one where none
// does.
func (o *topicBench) plain(ctx context.Context) error {
	var sides []*side
	defer func() { endAll(sides) }()
	for _, name := range []string{"a queue alone", "a queue beside topics, order and results"} {
		s, err := o.newSide(ctx, o.bin, name, cycleOf(64, 16, o.time, 100))
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	waiting, err := o.populate(ctx, sides[1].Addr())
	defer func() {
		for _, c := range waiting {
			_ = c.Close() // it waits
		}
	}()
	if err != nil {
		return err
	}
	return o.ratios("beside others", sides, func(s *side) error { return s.freshRound(ctx) })
}

// populate binds queues, has messages of an ordered queue out, and opens connections that wait for
// results.
func (o *topicBench) populate(ctx context.Context, addr string) (waiting []*bench.Conn, err error) {
	c, err := bench.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // all replies have been read
	do := func(words ...string) any {
		if err != nil {
			return nil
		}
		var reply any
		reply, err = c.Do(words...)
		return reply
	}
	do("FILA.QUEUE", "CREATE", "ordered", "ORDERED", "ON", "VISIBILITY", "86400000")
	var ids []string
	for i := range o.others {
		queue := "bound-" + strconv.Itoa(i%100)
		do("FILA.QUEUE", "CREATE", queue, "IFNOTEXISTS")
		do("FILA.TOPIC", "BIND", "topic-"+strconv.Itoa(i/100), queue)
		id, _ := do("FILA.ENQUEUE", "ordered", "x", "KEY", strconv.Itoa(i)).(string)
		do("FILA.ENQUEUE", "ordered", "y", "KEY", strconv.Itoa(i))
		ids = append(ids, id)
	}
	for left := o.others; left > 0 && err == nil; left -= 100 {
		do("FILA.LEASE", "ordered", "COUNT", strconv.Itoa(min(left, 100)))
	}
	for _, id := range ids {
		if err != nil {
			break
		}
		var w *bench.Conn
		if w, err = bench.Dial(ctx, addr); err != nil {
			break
		}
		waiting = append(waiting, w)
		w.Append("FILA.RESULT", "ordered", id, "BLOCK", "0")
		err = w.Flush()
	}
	return waiting, err
}

// fanOut is a broker with queues that are bound to a topic.
type fanOut struct {
	addr      string
	queues    int
	published bool // by one command; false: by an enqueue for each queue

	noise   bench.Noise
	payload int
	next    atomic.Uint64
}

// Name implements bench.Peer.
func (f *fanOut) Name() string { return "fila" }

func (f *fanOut) queue(i int) string { return benchQueue + strconv.Itoa(i) }

// Prepare implements bench.Peer.
func (f *fanOut) Prepare(ctx context.Context, s bench.Shape) error {
	f.noise, f.payload = bench.NewNoise(s.Payload), s.Payload
	return f.each(ctx, func(queue string) [][]string {
		return [][]string{{"FILA.QUEUE", "CREATE", queue, "NODLQ"}, {"FILA.TOPIC", "BIND", benchQueue, queue}}
	})
}

// Clean implements bench.Peer.
func (f *fanOut) Clean(ctx context.Context) error {
	return f.each(ctx, func(queue string) [][]string { return [][]string{{"FILA.QUEUE", "DELETE", queue, "FORCE"}} })
}

// each executes commands for each queue.
func (f *fanOut) each(ctx context.Context, commands func(queue string) [][]string) error {
	c, err := bench.Dial(ctx, f.addr)
	if err != nil {
		return err
	}
	for i := range f.queues {
		for _, words := range commands(f.queue(i)) {
			if _, err := c.Do(words...); err != nil {
				return errors.Join(err, c.Close())
			}
		}
	}
	return c.Close()
}

// Connect implements bench.Peer.
func (f *fanOut) Connect(ctx context.Context) (bench.Session, error) {
	c, err := bench.Dial(ctx, f.addr)
	if err != nil {
		return nil, err
	}
	s := &fanOutSession{Conn: c, peer: f}
	for i := range f.queues {
		s.heads = append(s.heads, head("FILA.ENQUEUE", f.queue(i), f.payload))
	}
	if f.published {
		s.heads = [][]byte{head("FILA.PUBLISH", benchQueue, f.payload)}
	}
	return s, nil
}

// head is a command up to its payload.
func head(name, to string, payload int) []byte {
	return fmt.Appendf(nil, "*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n", len(name), name, len(to), to, payload)
}

// fanOutSession is one connection.
type fanOutSession struct {
	*bench.Conn

	peer  *fanOut
	heads [][]byte
}

// Enqueue implements bench.Session: the n messages are the copies of one message for each queue.
func (s *fanOutSession) Enqueue(n int) error {
	payload := s.peer.noise.Payload(s.peer.next.Add(1), s.peer.payload)
	for _, h := range s.heads {
		for _, part := range [][]byte{h, payload, []byte("\r\n")} {
			_, _ = s.Write(part) // into a buffer
		}
	}
	if err := s.Flush(); err != nil {
		return err
	}
	got := 0
	for range s.heads {
		reply, err := s.Reply()
		if err != nil {
			return err
		}
		if list, ok := reply.([]any); ok {
			got += len(slices.DeleteFunc(list, func(v any) bool { return v == nil }))
			continue
		}
		got++
	}
	if got != n {
		return fmt.Errorf("%d messages were stored, want %d", got, n)
	}
	return nil
}

var errEnqueueOnly = errors.New("this load only enqueues")

// Lease implements bench.Session.
func (s *fanOutSession) Lease(int) error { return errEnqueueOnly }

// Ack implements bench.Session.
func (s *fanOutSession) Ack() error { return errEnqueueOnly }
