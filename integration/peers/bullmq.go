package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// bullmq is BullMQ on a Redis. Its client is JavaScript, so a separate program generates the load;
// only the server is measured here.
type bullmq struct {
	port int
	pid  int // of Redis
	dir  string
}

// findBullMQ returns the directory in which npm has installed BullMQ with its driver.
func findBullMQ(source string) (string, error) {
	if _, err := need("node", "apt-get install nodejs npm"); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(source, "bullmq"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "bullmq")); err != nil {
		return "", missing{"bullmq", "run make setup-peers"}
	}
	return dir, nil
}

// compiled is the warm-up until JavaScript code is compiled: each round is a new process.
const compiled = 3 * time.Second

// round measures once, as bench.Load does for the other systems.
func (b *bullmq) round(ctx context.Context, c *testCase, o *options) (bench.Round, error) {
	args := []string{filepath.Join(b.dir, "driver.mjs"), strconv.Itoa(b.port), "fila-peers"}
	for _, n := range []int{c.Conns, c.Pipeline, c.Payload, int(max(o.warmup, compiled).Milliseconds()), int(o.time.Milliseconds())} {
		args = append(args, strconv.Itoa(n))
	}
	ctx, cancel := context.WithTimeout(ctx, max(o.warmup, compiled)+o.time+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return bench.Round{}, err
	}
	if err := cmd.Start(); err != nil {
		return bench.Round{}, err
	}
	r, err := b.read(bufio.NewScanner(out))
	if ended := cmd.Wait(); err != nil || ended != nil {
		return bench.Round{}, fmt.Errorf("driver.mjs: %w", errors.Join(err, ended))
	}
	return r, nil
}

func (b *bullmq) read(lines *bufio.Scanner) (bench.Round, error) {
	if !lines.Scan() || lines.Text() != "begin" {
		return bench.Round{}, errors.New("the load did not begin")
	}
	account := bench.Open(b.pid)
	if !lines.Scan() || lines.Text() != "end" || !lines.Scan() {
		return bench.Round{}, errors.New("the load did not finish")
	}
	var counted struct {
		Messages, All int64
		Seconds       float64
	}
	if err := json.Unmarshal(lines.Bytes(), &counted); err != nil {
		return bench.Round{}, err
	}
	r := bench.Round{Messages: counted.Messages, Seconds: counted.Seconds, Rate: float64(counted.Messages) / counted.Seconds}
	account.Charge(&r, counted.All)
	return r, nil
}
