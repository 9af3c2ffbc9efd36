package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/faisca/fila/internal/client"
)

// clusterRows are for the operators of several nodes that are one broker.
func clusterRows() []row {
	return []row{
		{
			name: "cluster status", short: "Show the nodes of a cluster, and how each is",
			long: `Any node answers, also without a leader: it asks the others, which takes seconds if one
is silent. ROLE is leader, voter, learner or none, STATE online, behind, readonly, joining
or down. A node is online if it has answered, has caught up since it started, and votes,
unless it is to be a learner. -o json has all fields, among them why a node does not answer.

Exit code 1: no node leads, or one is not online. With --wait it is asked again until all
are, also while the node that is asked does not answer: a rolling restart waits so before
the next node.`,
			run: (*call).clusterStatus, columns: "id role state address applied behind last_contact_ms version free_bytes",
			options: []option{
				{"wait", "", yes, "wait until a node leads and all are online"},
				{"timeout", "", millis, "with --wait: the `duration` after which it gives up; 10m unless it is given"},
			},
			examples: []string{"fila cluster status", "fila cluster status --wait --timeout 5m", "fila cluster status --url fila://10.0.0.7:5555 -o json"},
		},
		{
			name: "cluster transfer", args: "[NODE]", short: "Hand the leadership over to another node",
			long: `Without NODE, to the one that has most of the log. Clients see a pause and no error. Do it
before the node that leads is stopped for long, or upgraded.`,
			wire: "FILA.CLUSTER TRANSFER", done: "handed over",
			examples: []string{"fila cluster transfer", "fila cluster transfer b"},
		},
		{
			name: "cluster remove", args: "NODE", short: "Remove a node from a cluster",
			long: `Its process ends. To bring it back, empty its storage.path and cluster.path. It is refused
for the node that leads, and if the nodes that are left and answer were no majority.`,
			wire: "FILA.CLUSTER REMOVE", done: "removed $NODE",
			ask:      "Remove the node $NODE from the cluster?",
			examples: []string{"fila cluster remove c", "fila cluster remove c --yes"},
		},
		{
			name: "cluster learner", args: "NODE", short: "Have a node of a cluster keep a copy, and not vote",
			long: `Until fila cluster voter, whichever node leads and whatever restarts. A learner that may vote
gets a vote in its place first. It is refused for the node that leads, and if fewer than
three voters were left or no majority of them answers.`,
			wire: "FILA.CLUSTER LEARNER", done: "$NODE is a learner",
			examples: []string{"fila cluster learner c"},
		},
		{
			name: "cluster voter", args: "NODE", short: "Have a node vote that fila cluster learner has named",
			long: `It gets its vote as soon as it has caught up and there is room for a voter: there are three,
with five nodes or more five. fila cluster status shows it.`,
			wire: "FILA.CLUSTER VOTER", done: "$NODE may vote",
			examples: []string{"fila cluster voter c"},
		},
		{
			name: "cluster verify", short: "Compare the stores of all nodes",
			long: `Each node hashes its store as it is at one entry of the log. A node whose store differs
from that of the majority ends, and does not start again with it: empty its storage.path
and cluster.path, and it joins with a copy. The nodes serve meanwhile.

Exit code 1: a store differs, or was not compared.`,
			run: (*call).clusterVerify, columns: "id result records digest reason",
			examples: []string{"fila cluster verify", "fila cluster verify -o json"},
		},
	}
}

// clusterStatus shows the nodes, and fails if they are not all well.
func (c *call) clusterStatus() error {
	if c.given("timeout") && !c.is("wait") {
		return usagef("--timeout is for --wait: give both, or neither")
	}
	nodes, err := c.askCluster()
	if c.is("wait") {
		nodes, err = c.awaitCluster(nodes, err)
	}
	if err != nil {
		return err
	}
	rows := c.rows()
	for _, m := range nodes {
		rows.Add(m)
	}
	rows.Close("")
	return unwell(nodes)
}

// askCluster returns what a node says of all.
func (c *call) askCluster() ([]client.Map, error) {
	reply, err := c.do("FILA.CLUSTER", "STATUS")
	return client.Maps(reply), err
}

// unwell returns why nodes are not all well, nil if they are.
func unwell(nodes []client.Map) error {
	leads := false
	var bad []string
	for _, m := range nodes {
		leads = leads || m.Text("role") == "leader"
		if state := m.Text("state"); state != "online" {
			bad = append(bad, m.Text("id")+" is "+state)
		}
	}
	switch {
	case !leads:
		return errors.New("no node leads: a majority of the voters has to run and to reach each other")
	case len(bad) > 0:
		return errors.New(strings.Join(bad, ", "))
	}
	return nil
}

const (
	awaitTime  = 10 * time.Minute       // for a node to copy a store
	awaitEvery = 500 * time.Millisecond // between two questions
)

// awaitCluster asks again until the nodes are all well, the time is over, or the broker refuses the question.
// People are told what it waits for whenever that changes.
func (c *call) awaitCluster(nodes []client.Map, err error) ([]client.Map, error) {
	most := awaitTime
	if c.given("timeout") {
		most = c.duration("timeout")
	}
	ctx, cancel := context.WithTimeout(c.ctx, most)
	defer cancel()
	said := ""
	for {
		trouble := err
		if err == nil {
			trouble = unwell(nodes)
		}
		if trouble == nil || client.Refused(err) && !client.Refused(err, "LOADING") {
			return nodes, err
		}
		if text := oneLine(trouble.Error()); text != said {
			said = text
			fmt.Fprintln(c.env.Stderr, "fila: waiting: "+text)
		}
		select {
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("not all nodes are well after %s: %w", most, trouble)
		case <-time.After(awaitEvery):
		}
		if err != nil && c.conn != nil {
			_ = c.conn.Close() // it has failed
			c.conn = nil
		}
		nodes, err = c.askCluster()
	}
}

func (c *call) clusterVerify() error {
	reply, err := c.do("FILA.CLUSTER", "VERIFY")
	if err != nil {
		return err
	}
	rows := c.rows()
	var wrong []string
	for _, m := range client.Maps(reply) {
		rows.Add(m)
		if result := m.Text("result"); result != "equal" {
			wrong = append(wrong, fmt.Sprintf("the store of %s: %s", m.Text("id"), result))
		}
	}
	rows.Close("")
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, ", "))
	}
	return nil
}
