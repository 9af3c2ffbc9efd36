// Redisbench is the guard of the throughput: it lets redis-benchmark enqueue into
// Fila, and add to a stream of a real redis-server that syncs before each reply as
// Fila does, in turns, and compares. It needs redis-server and redis-benchmark.
package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/broker"
	"github.com/faisca/fila/internal/proc"
)

// options is what the flags say.
type options struct {
	bin      string
	rounds   int
	n        int
	conns    int
	pipeline int
	size     int
	slower   float64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.IntVar(&o.rounds, "rounds", 5, "how `often` each is measured")
	flag.IntVar(&o.n, "n", 300_000, "`commands` a round")
	flag.IntVar(&o.conns, "c", 50, "`connections`")
	flag.IntVar(&o.pipeline, "P", 16, "`commands` sent at once on each")
	flag.IntVar(&o.size, "d", 256, "`bytes` of a message")
	flag.Float64Var(&o.slower, "max", 2, "exit with 1 when Fila is so many `times` slower; 0: never")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "redisbench: %v\n", err)
		os.Exit(1)
	}
}

// contender is a server and the command it is measured with.
type contender struct {
	name    string
	addr    string
	pid     int
	command []string
	clear   []any // makes room again after a round

	rates []float64       // commands a second, by round
	cpu   []time.Duration // of the server, for 100,000 commands
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "fila-redisbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	payload := strings.Repeat("x", o.size)

	b, err := broker.New(o.bin, dir, "--storage.sync", "always")
	if err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	defer func() { _ = b.Kill() }()
	if err := b.Ready(ctx); err != nil {
		return err
	}
	fila := &contender{
		name: "fila", addr: b.Addr(), pid: b.PID(),
		command: []string{"FILA.ENQUEUE", "bench", payload},
		clear:   []any{"FILA.QUEUE", "DELETE", "bench", "FORCE"},
	}
	server, addr, err := redisServer(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	original := &contender{
		name: "redis", addr: addr, pid: server.Process.Pid,
		command: []string{"XADD", "bench", "*", "payload", payload},
		clear:   []any{"DEL", "bench"},
	}
	for round := range o.rounds {
		// Who goes first changes: the disk and the machine's clock are not the same
		// all the time.
		pair := []*contender{fila, original}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, c := range pair {
			if err := c.measure(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		fmt.Printf("round %d: fila %.0f/s, redis %.0f/s\n", round+1, fila.rates[round], original.rates[round])
	}
	return compare(o, fila, original)
}

func compare(o options, fila, original *contender) error {
	fmt.Printf("\nredis-benchmark -c %d -P %d, %d bytes, synced before each reply, median of %d rounds of %d commands\n", o.conns, o.pipeline, o.size, o.rounds, o.n)
	for _, c := range []*contender{fila, original} {
		fmt.Printf("%-6s %9.0f/s, %.2f s of the server's CPU for 100,000\n", c.name, median(c.rates), median(c.cpu).Seconds())
	}
	ratio := median(fila.rates) / median(original.rates)
	fmt.Printf("fila is %.2f times as fast as redis\n", ratio)
	if o.slower > 0 && ratio*o.slower < 1 {
		return fmt.Errorf("that is more than %g times slower", o.slower)
	}
	return nil
}

// measure is one round.
func (c *contender) measure(ctx context.Context, o options) error {
	client := redis.NewClient(&redis.Options{Addr: c.addr, ReadTimeout: time.Minute})
	defer client.Close()
	if c.name == "fila" {
		if err := client.Do(ctx, "FILA.QUEUE", "CREATE", "bench").Err(); err != nil {
			return err
		}
	}
	host, port, err := net.SplitHostPort(c.addr)
	if err != nil {
		return err
	}
	before, err := proc.UseOf(c.pid)
	if err != nil {
		return err
	}
	args := append([]string{
		"-h", host, "-p", port, "--csv",
		"-c", strconv.Itoa(o.conns), "-P", strconv.Itoa(o.pipeline), "-n", strconv.Itoa(o.n),
	}, c.command...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return fmt.Errorf("redis-benchmark: %w", err)
	}
	after, err := proc.UseOf(c.pid)
	if err != nil {
		return err
	}
	rate, err := rateOf(string(out))
	if err != nil {
		return err
	}
	c.rates = append(c.rates, rate)
	c.cpu = append(c.cpu, (after.CPU-before.CPU)*100_000/time.Duration(o.n))
	return client.Do(ctx, c.clear...).Err()
}

// rateOf finds the commands a second in redis-benchmark's table.
func rateOf(table string) (float64, error) {
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || len(rows) == 0 {
		return 0, fmt.Errorf("redis-benchmark printed %q", table)
	}
	last := rows[len(rows)-1]
	if len(last) < 2 {
		return 0, fmt.Errorf("redis-benchmark printed %q", table)
	}
	return strconv.ParseFloat(last[1], 64)
}

// redisServer starts a redis-server that syncs its log before it replies.
func redisServer(ctx context.Context, dir string) (*exec.Cmd, string, error) {
	addr, err := broker.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command("redis-server", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--logfile", "redis.log")
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for ctx.Err() == nil {
		if client.Ping(ctx).Err() == nil {
			return cmd, addr, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, "", ctx.Err()
}

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
