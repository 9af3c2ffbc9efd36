package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// What nodes log about leadership and members, as their lines begin.
const (
	lineLeads   = "this node leads the cluster"
	lineCeased  = "this node no longer leads the cluster"
	lineVotes   = "a node has caught up and votes from now on"
	lineArrived = "the data of the cluster has arrived"
)

// Leadership is one leadership of a node.
type Leadership struct {
	Node string
	Term uint64
	Seen time.Time     // shortly after it began, by the time of the line
	Took time.Duration // from the election to Seen, about
	// Ceased says that the node has lost it, in place of having handed it over or ended.
	Ceased bool
}

// Watch follows what the nodes of a cluster log.
type Watch struct {
	files map[string]*tail
	stop  chan struct{}
	done  chan struct{}

	mu       sync.Mutex
	terms    []Leadership   // by term
	votes    map[string]int // by node: how often it was given its vote
	arrivals map[string]int // by node: copies of the data that it has got
}

// tail is a log and how far it was read.
type tail struct {
	node string
	path string
	at   int64
	rest []byte // an incomplete line
}

// watchEvery is the time between two looks at the logs.
const watchEvery = 10 * time.Millisecond

// NewWatch begins to follow the logs of the nodes.
func NewWatch(nodes []*Node) *Watch {
	w := &Watch{files: map[string]*tail{}, stop: make(chan struct{}), done: make(chan struct{}), votes: map[string]int{}, arrivals: map[string]int{}}
	for _, n := range nodes {
		w.files[n.ID] = &tail{node: n.ID, path: n.Log()}
	}
	go w.follow()
	return w
}

// Close ends the watch, after it has read all that was logged.
func (w *Watch) Close() {
	close(w.stop)
	<-w.done
}

// Leader returns the node that has begun to lead last; "": none has.
func (w *Watch) Leader() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.terms) == 0 {
		return ""
	}
	return w.terms[len(w.terms)-1].Node
}

// Formed waits until a leader is seen and all nodes but the one that has formed the cluster, which is the
// first, were given their votes.
func (w *Watch) Formed(ctx context.Context, nodes []*Node) error {
	for {
		missing := ""
		if w.Leader() == "" {
			missing = "no node leads"
		}
		for _, n := range nodes[1:] {
			if w.Votes(n.ID) == 0 {
				missing = "node " + n.ID + " does not vote"
			}
		}
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", missing, ctx.Err())
		case <-time.After(watchEvery):
		}
	}
}

// Leaderships returns all leaderships in the order of their terms.
func (w *Watch) Leaderships() []Leadership {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Leadership(nil), w.terms...)
}

// Votes returns how often a node was given its vote.
func (w *Watch) Votes(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.votes[node]
}

// Arrivals returns how often a node has got a copy of the data.
func (w *Watch) Arrivals(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrivals[node]
}

func (w *Watch) follow() {
	defer close(w.done)
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	for last := false; !last; {
		select {
		case <-w.stop:
			last = true
		case <-again.C:
		}
		for _, t := range w.files {
			for _, line := range t.lines() {
				w.line(t.node, line)
			}
		}
	}
}

// lines returns the lines that were added since the last call.
func (t *tail) lines() [][]byte {
	f, err := os.Open(t.path)
	if err != nil {
		return nil // not started yet
	}
	defer f.Close()
	more, err := io.ReadAll(io.NewSectionReader(f, t.at, 1<<30))
	if err != nil {
		return nil
	}
	t.at += int64(len(more))
	all := bytes.Split(append(t.rest, more...), []byte("\n"))
	t.rest = all[len(all)-1]
	return all[:len(all)-1]
}

// line notes a line of a log.
func (w *Watch) line(of string, text []byte) {
	var l struct {
		Message string  `json:"message"`
		Term    uint64  `json:"term"`
		Took    float64 `json:"took_ms"`
		Node    string  `json:"node"`

		Time time.Time `json:"time"`
	}
	if json.Unmarshal(text, &l) != nil {
		return // of another kind, such as the last words of a process
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch l.Message {
	case lineLeads:
		at := len(w.terms)
		for at > 0 && w.terms[at-1].Term > l.Term {
			at--
		}
		// A node that has started its engine again leads twice in one term.
		w.terms = append(w.terms, Leadership{})
		copy(w.terms[at+1:], w.terms[at:])
		w.terms[at] = Leadership{Node: of, Term: l.Term, Seen: l.Time, Took: time.Duration(l.Took * float64(time.Millisecond))}
	case lineCeased:
		for i := range w.terms {
			if w.terms[i].Term == l.Term && w.terms[i].Node == of {
				w.terms[i].Ceased = true
			}
		}
	case lineVotes:
		w.votes[l.Node]++
	case lineArrived:
		w.arrivals[of]++
	}
}
