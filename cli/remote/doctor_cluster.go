package remote

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

// What the doctor finds of the nodes of a cluster, as the node knows them that it asks. Of a broker that is
// no node it finds nothing.

// clusterChecks are all, the urgent first.
func clusterChecks() []check {
	return []check{{"leader", leader}, {"nodes", nodes}, {"majority", majority}, {"clocks", clocks}, {"ports", ports}, {"learners", learners}}
}

// eachNode looks at all nodes of the cluster.
func (p *patient) eachNode(look func(id string, n client.Map) (what, advice string)) []finding {
	var all []finding
	for _, n := range p.nodes {
		if what, advice := look(n.Text("id"), n); what != "" {
			all = append(all, finding{what, advice})
		}
	}
	return all
}

// led reports whether a node leads, or there is no cluster.
func (p *patient) led() bool {
	return len(p.nodes) == 0 || slices.ContainsFunc(p.nodes, func(n client.Map) bool { return n.Text("role") == "leader" })
}

func votes(n client.Map) bool { return n.Text("role") == "leader" || n.Text("role") == "voter" }

func leader(p *patient) []finding {
	if p.led() {
		return nil
	}
	return one("no node of the cluster leads, so commands are answered LOADING", "a majority of the voters has to run and to reach each other: start the ones that are down")
}

func nodes(p *patient) []finding {
	return p.eachNode(func(id string, n client.Map) (string, string) {
		because := ""
		if trouble := n.Text("trouble"); trouble != "" {
			because = ": " + trouble
		}
		switch n.Text("state") {
		case "down":
			return "node " + id + " does not answer" + because, "start it, or look at its machine and its network"
		case "joining":
			if strings.Contains(because, "cluster.peers") {
				return "node " + id + " is not admitted" + because, "give all nodes the same cluster.peers, and restart those that had another"
			}
			if votes(n) || n.Int("applied") == 0 {
				return "node " + id + " has not got the data of the cluster yet" + because, "wait; if it stays so, its log says why"
			}
			return "node " + id + " has the data and no vote yet" + because, "wait; lose or restart no other node meanwhile"
		case "readonly":
			return "node " + id + " takes no writes", "its disk is full or fails: its log says which"
		case "behind":
			if n.Int("behind") == 0 {
				return "node " + id + " has come back and is catching up", "wait; restart no other node meanwhile"
			}
			late := time.Duration(n.Int("behind_ms")) * time.Millisecond
			return fmt.Sprintf("node %s lacks %d entries, for %s", id, n.Int("behind"), output.Duration(late)), "look at its disk, its processor and its network; it catches up by itself"
		}
		return "", ""
	})
}

// majority judges how many voters more may be lost.
func majority(p *patient) []finding {
	voters, well := 0, 0
	for _, n := range p.nodes {
		if !votes(n) {
			continue
		}
		voters++
		if n.Text("state") == "online" || n.Text("state") == "behind" {
			well++
		}
	}
	const least = 3
	switch {
	case voters == 0: // it forms, or no leader says who votes
		return nil
	case voters < least:
		return one(fmt.Sprintf("%d nodes vote: the loss of one stops the cluster", voters), fmt.Sprintf("start nodes until %d vote", least))
	case well <= voters/2:
		return one(fmt.Sprintf("%d of %d voters are well, which is no majority: the cluster has stopped", well, voters), "bring the others back: start them, or look at their disks and their network")
	case well-1 <= voters/2:
		return one(fmt.Sprintf("%d of %d voters are well: the loss of one more stops the cluster", well, voters), "bring the others back first; restart no node meanwhile")
	}
	return nil
}

func clocks(p *patient) []finding {
	const far = time.Second
	return p.eachNode(func(id string, n client.Map) (string, string) {
		if off := time.Duration(n.Int("clock_skew_ms")) * time.Millisecond; off.Abs() > far {
			return "the clock of node " + id + " differs by " + output.Duration(off.Abs()) + " from that of the node that answers", "run NTP on all: a node whose clock is ahead ends leases and delays that much sooner when it takes over"
		}
		return "", ""
	})
}

// ports finds nodes that lack a port which others have, and addresses at which clients do not reach them.
func ports(p *patient) []finding {
	kinds := map[string]string{} // with a node that has it
	for _, n := range p.nodes {
		for kind := range strings.FieldsSeq(n.Text("ports")) {
			kinds[kind] = n.Text("id")
		}
	}
	return p.eachNode(func(id string, n client.Map) (string, string) {
		has := strings.Fields(n.Text("ports"))
		if len(has) == 0 {
			return "", "" // it was never heard
		}
		var lacks []string
		for kind, other := range kinds {
			if !slices.Contains(has, kind) {
				lacks = append(lacks, kind+" (node "+other+" has one)")
			}
		}
		if len(lacks) > 0 {
			slices.Sort(lacks)
			return "node " + id + " has no port of the kind " + strings.Join(lacks, ", "), "give all nodes the same kinds of ports, see docs/how-to/cluster.md"
		}
		host, _, _ := net.SplitHostPort(n.Text("client"))
		node, _, _ := net.SplitHostPort(n.Text("address"))
		if loopback(host) && !loopback(node) {
			return "clients are told " + n.Text("client") + " for node " + id + ", which other machines do not reach", "set cluster.advertise_host there"
		}
		return "", ""
	})
}

func learners(p *patient) []finding {
	return p.eachNode(func(id string, n client.Map) (string, string) {
		if n.Int("named") == 0 {
			return "", ""
		}
		return "node " + id + " keeps a copy and does not vote, as an operator has said", "`fila cluster voter " + id + "` lets it vote again, unless that is meant"
	})
}
