package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/bench"
)

// testCase is a load for the systems that it names. Of these the first is the one that the others are
// compared with.
type testCase struct {
	Name     string         `json:"name"`
	What     string         `json:"what"`
	Workload bench.Workload `json:"workload"`
	Conns    int            `json:"connections"`
	Pipeline int            `json:"pipeline"`
	Payload  int            `json:"payload_bytes"`
	Rate     float64        `json:"rate,omitempty"` // messages a second; 0: as many as the server takes
	quick    bool           // -quick measures it
	systems  []string
	goals    []goal
}

// usualPayload is the size of a message in bytes unless the case is about another; keys is the number of
// fairness keys, which only Fila has.
const (
	usualPayload = 256
	keys         = 100
)

// testCases is the table of cases. Systems that sync before they reply are compared with each other, and
// so are those that sync later; the cases of -quick show both beside Fila.
func testCases(o *options) []testCase {
	if o.nodes {
		return nodeCases()
	}
	resp := []string{"fila", "fila-plain", "redis-always", "redis-everysec"}
	queues := slices.Concat(resp, []string{"rabbitmq", "nats-always", "nats-default", "beanstalkd-f0", "beanstalkd-default"})
	all := slices.Concat(queues, []string{"bullmq-always", "bullmq-everysec", "asynq-always", "asynq-everysec"})
	synced := []string{"fila", "redis-always", "rabbitmq", "nats-always", "beanstalkd-f0"}
	later := []string{"fila-interval", "redis-everysec"}
	laterAll := slices.Concat(later, []string{"nats-default", "beanstalkd-default"})
	waiting := []string{"fila", "redis-always"}
	stored := []string{"fila-stored", "redis-stored", "fila", "redis-always"}
	const cycle, enqueue, wait = bench.Cycle, bench.Enqueue, bench.Wait
	return []testCase{
		{"cycle-64x16", "enqueue, lease and ack: 64 connections, 16 messages at once", cycle, 64, 16, usualPayload, 0, true, all, slices.Concat(besideRedis(1.2), besideQueues())},
		{"cycle-16x1", "enqueue, lease and ack: 16 connections, one message at a time", cycle, 16, 1, usualPayload, 0, true, queues, besideRedis(1.3)},
		{"enqueue-50x16", "enqueue alone: 50 connections, 16 messages at once", enqueue, 50, 16, usualPayload, 0, true, resp, besideRedis(1.1)},
		{"enqueue-50x1", "enqueue alone: 50 connections, one message at a time", enqueue, 50, 1, usualPayload, 0, true, resp, besideRedis(1.1)},
		{"cycle-1k", "cycles of 1 KiB messages: 64 connections, 16 messages at once", cycle, 64, 16, 1 << 10, 0, false, synced, besideRedis(1.2)},
		{"cycle-16k", "cycles of 16 KiB messages: 64 connections, 16 messages at once", cycle, 64, 16, 16 << 10, 0, false, synced, besideRedis(1.2)},
		{"cycle-256k", "cycles of 256 KiB messages: 16 connections, 4 messages at once", cycle, 16, 4, 256 << 10, 0, false, synced[:4], besideRedis(1.2)}, // beanstalkd takes at most 64 KiB
		{"weak-cycle-64x16", "cycles synced after the reply: 64 connections, 16 messages at once", cycle, 64, 16, usualPayload, 0, false, laterAll, besideEverysec()},
		{"weak-cycle-16x1", "cycles synced after the reply: 16 connections, one message at a time", cycle, 16, 1, usualPayload, 0, false, laterAll, besideEverysec()},
		{"weak-enqueue-50x16", "enqueue alone, synced after the reply: 50 connections, 16 messages at once", enqueue, 50, 16, usualPayload, 0, false, later, besideEverysec()},
		{"wait-200", "to a waiting consumer, 200 a second: 16 producers, 16 consumers, one message at a time", wait, 16, 1, usualPayload, 200, false, waiting, waitingBesideRedis()},
		{"wait-5000", "to a waiting consumer, 5,000 a second: 16 producers, 16 consumers, one message at a time", wait, 16, 1, usualPayload, 5000, false, waiting, waitingBesideRedis()},
		{"backlog-64x16", fmt.Sprintf("cycles with %d messages stored, beside none: 64 connections, 16 messages at once", o.backlog), cycle, 64, 16, usualPayload, 0, false, stored, storedBesideNone()},
	}
}

// nodeCases is the table of cases for clusters.
func nodeCases() []testCase {
	clusters := []string{"fila-nodes", "rabbitmq-nodes", "nats-nodes"}
	return []testCase{
		{"cycle-64x16", "enqueue, lease and ack: 64 connections, 16 messages at once", bench.Cycle, 64, 16, usualPayload, 0, true, clusters, nil},
		{"cycle-16x1", "enqueue, lease and ack: 16 connections, one message at a time", bench.Cycle, 16, 1, usualPayload, 0, true, clusters, nil},
	}
}

// has reports whether the case is for a system.
func (c *testCase) has(id string) bool { return slices.Contains(c.systems, id) }

// latency is the name of the latency that the case is about.
func (c *testCase) latency() string {
	if c.Workload == bench.Wait {
		return "deliver"
	}
	return string(c.Workload)
}

// chosenCases returns the cases that the flags select.
func chosenCases(o *options) ([]testCase, error) {
	all := testCases(o)
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	if err := checkNames("-cases", o.cases, names); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c testCase) bool {
		if o.cases == "" {
			return o.quick && !c.quick
		}
		return !chosen(o.cases, c.Name)
	}), nil
}

// chosen reports whether a comma-separated list contains a name; an empty list contains all.
func chosen(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// checkNames refuses a comma-separated list with a name that is not known.
func checkNames(flag, list string, known []string) error {
	for name := range strings.SplitSeq(list, ",") {
		if list != "" && !slices.Contains(known, name) {
			return fmt.Errorf("%s %q is not one of %s", flag, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// listCases writes what -cases and -only can select.
func listCases(w io.Writer, o *options) {
	fmt.Fprintf(w, "\nCases (* also with -quick):\n")
	for _, c := range testCases(o) {
		mark := ' '
		if c.quick {
			mark = '*'
		}
		fmt.Fprintf(w, "  %-19s%c %s\n", c.Name, mark, c.What)
	}
	fmt.Fprintf(w, "\nSystems:\n")
	for _, s := range allSystems(o) {
		fmt.Fprintf(w, "  %-19s  %s, %s\n", s.ID, s.Name, s.Settings)
	}
}
