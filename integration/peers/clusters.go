package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/bench"
)

// Clusters of three nodes, each of which has what it acknowledges on the disks of a majority. All nodes
// are on this machine, and the load is on the one that leads, or that leads the queue.

// clusters returns the systems that -nodes compares, Fila first.
func clusters() []system {
	return []system{
		{ID: "fila-nodes", Name: "Fila", Settings: "three nodes, 100 fairness keys", Batch: respBatch, Synced: true, start: startFilaNodes},
		{ID: "rabbitmq-nodes", Name: "RabbitMQ", Settings: "three nodes, quorum queue of three, confirms, prefetch N", Batch: "N publishes, their confirms awaited together; one ack of N, not confirmed", Synced: true, start: startRabbitNodes},
		{ID: "nats-nodes", Name: "NATS JetStream", Settings: "three nodes, R3, file store, sync_interval always", Batch: "N asynchronous publishes; one fetch of N; N acks, the last confirmed", Synced: true, start: startNATSNodes},
	}
}

// formed is how long a cluster may take to form.
const formed = 2 * time.Minute

// startFilaNodes starts three brokers that are one cluster.
func startFilaNodes(ctx context.Context, r *run) (*running, error) {
	var homes []string
	for i := range 3 {
		home := filepath.Join(r.root, fmt.Sprint("fila-node-", i+1))
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, err
		}
		homes = append(homes, home)
	}
	c, err := harness.NewDirectCluster(r.bin, homes, harness.Same())
	if err != nil {
		return nil, err
	}
	r.later(func() { _ = c.Close() }) // its directories are removed anyway
	ctx, cancel := context.WithTimeout(ctx, formed)
	defer cancel()
	watch := harness.NewWatch(c.Nodes)
	defer watch.Close()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	if err := watch.Formed(ctx, c.Nodes); err != nil {
		return nil, err
	}
	leader := c.Node(watch.Leader())
	s, err := resp(ctx, leader.Addr())
	if err != nil {
		return nil, err
	}
	s.pid = leader.PID()
	return s, nil
}

// retry calls do until it succeeds or ctx ends.
func retry(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startRabbitNodes starts three nodes with a port mapper of their own, and joins two to the first.
func startRabbitNodes(ctx context.Context, r *run) (*running, error) {
	bin, err := need(rabbitScript, "apt-get install rabbitmq-server")
	if err != nil {
		return nil, err
	}
	epmd, err := r.startMapper(ctx, "epmd-nodes")
	if err != nil {
		return nil, err
	}
	// They share the directory with the cookie by which they know each other.
	home, err := newPlace(r.root, "rabbitmq-home")
	if err != nil {
		return nil, err
	}
	first := "fila-peers-1@localhost"
	var peer *rabbit
	var pid int
	for i := range 3 {
		at, err := newPlace(r.root, fmt.Sprint("rabbitmq-", i+1))
		if err != nil {
			return nil, err
		}
		dist, err := newPlace(r.root, fmt.Sprint("rabbitmq-", i+1))
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("fila-peers-%d@localhost", i+1)
		env := rabbitEnv(at, home.dir, name, epmd.port, dist.port)
		node := &rabbit{addr: at.addr, replicas: 3}
		p, err := startProcess(ctx, at.dir, env, node.ready, bin)
		if err != nil {
			return nil, err
		}
		r.later(p.stop)
		if i == 0 {
			peer, pid = node, p.pid()
			continue
		}
		for _, args := range [][]string{{"stop_app"}, {"join_cluster", first}, {"start_app"}} {
			cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(rabbitScript), "rabbitmqctl"), append([]string{"-n", name}, args...)...)
			cmd.Env = append(os.Environ(), env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
	return &running{Version: peer.version, pid: pid, peer: peer}, nil
}

// startNATSNodes starts three servers built by make bench-peers beside this program.
func startNATSNodes(ctx context.Context, r *run) (*running, error) {
	bin, err := r.natsBinary()
	if err != nil {
		return nil, err
	}
	var servers, routes []place
	var urls []string
	for i := range 3 {
		at, err := newPlace(r.root, fmt.Sprint("nats-node-", i+1))
		if err != nil {
			return nil, err
		}
		route, err := newPlace(r.root, fmt.Sprint("nats-node-", i+1))
		if err != nil {
			return nil, err
		}
		servers, routes, urls = append(servers, at), append(routes, route), append(urls, "nats://"+route.addr)
	}
	var pid int
	for i, at := range servers {
		p, err := startProcess(ctx, at.dir, nil, listening(at.addr), bin, "-port", strconv.Itoa(at.port), "-dir", at.dir, "-sync-always=true",
			"-name", fmt.Sprint("node-", i+1), "-cluster-port", strconv.Itoa(routes[i].port), "-routes", strings.Join(urls, ","))
		if err != nil {
			return nil, err
		}
		r.later(p.stop)
		pid = p.pid()
	}
	out, err := exec.CommandContext(ctx, bin, "-version").Output()
	if err != nil {
		return nil, err
	}
	peer := &jet{addr: servers[0].addr, replicas: 3}
	forming, cancel := context.WithTimeout(ctx, formed)
	defer cancel()
	// A stream of three can be made when all three know each other.
	if err := retry(forming, func() error { return peer.Prepare(forming, bench.Shape{Queue: "probe", Payload: usualPayload}) }); err != nil {
		return nil, err
	}
	return &running{Version: strings.TrimSpace(string(out)), pid: pid, peer: peer}, peer.Clean(ctx)
}
