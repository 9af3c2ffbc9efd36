package remote

import (
	"errors"
	"fmt"
	"strings"

	"github.com/faisca/fila/internal/client"
)

// clusterRows are for the operators of several nodes that are one broker.
func clusterRows() []row {
	return []row{
		{
			name: "cluster status", short: "Show the nodes of a cluster, and how each is",
			long: `Any node answers, from what it knows itself, also without a leader. ROLE is leader, voter,
learner or none, STATE online, behind, readonly, joining or down. -o json has all fields,
among them why a node does not answer.

Exit code 1: no node leads, or one is not online.`,
			run: (*call).clusterStatus, columns: "id role state address applied behind last_contact_ms version free_bytes",
			examples: []string{"fila cluster status", "fila cluster status --url fila://10.0.0.7:5555 -o json"},
		},
		{
			name: "cluster transfer", args: "[NODE]", short: "Hand the leadership over to another node",
			long: `Without NODE, to the one that has most of the log. Clients see a pause and no error. Do it
before the node that leads is stopped for long, or upgraded.`,
			wire: "FILA.CLUSTER TRANSFER $NODE", done: "handed over",
			examples: []string{"fila cluster transfer", "fila cluster transfer b"},
		},
		{
			name: "cluster remove", args: "NODE", short: "Remove a node from a cluster",
			long: `Its process ends. To bring it back, empty its storage.path and cluster.path. It is refused
for the node that leads, and if the nodes that are left and answer were no majority.`,
			wire: "FILA.CLUSTER REMOVE $NODE", done: "removed $NODE",
			ask:      "Remove the node $NODE from the cluster?",
			examples: []string{"fila cluster remove c", "fila cluster remove c --yes"},
		},
		{
			name: "cluster learner", args: "NODE", short: "Have a node of a cluster keep a copy, and not vote",
			long: `Until fila cluster voter, whichever node leads and whatever restarts. A learner that may vote
gets a vote in its place first. It is refused for the node that leads, and if fewer than
three voters were left or no majority of them answers.`,
			wire: "FILA.CLUSTER LEARNER $NODE", done: "$NODE is a learner",
			examples: []string{"fila cluster learner c"},
		},
		{
			name: "cluster voter", args: "NODE", short: "Have a node vote that fila cluster learner has named",
			long: `It gets its vote as soon as it has caught up and there is room for a voter: there are three,
with five nodes or more five. fila cluster status shows it.`,
			wire: "FILA.CLUSTER VOTER $NODE", done: "$NODE may vote",
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

func (c *call) clusterStatus() error {
	reply, err := c.do("FILA.CLUSTER", "STATUS")
	if err != nil {
		return err
	}
	rows := c.rows()
	leads := false
	var unwell []string
	for _, m := range client.Maps(reply) {
		rows.Add(m)
		leads = leads || m.Text("role") == "leader"
		if state := m.Text("state"); state != "online" {
			unwell = append(unwell, m.Text("id")+" is "+state)
		}
	}
	rows.Close("")
	switch {
	case !leads:
		return errors.New("no node leads: a majority of the voters has to run and to reach each other")
	case len(unwell) > 0:
		return errors.New(strings.Join(unwell, ", "))
	}
	return nil
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
