package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/cluster/replica"
)

// A node without an identity asks its peers, again and again:
//
//  1. One of them has an identity: join its cluster (join.go).
//  2. All answer, none has one: the seed forms a cluster of one, which the others join. The seed is
//     the node whose store holds data; if there is none, the one with the least id; if there are
//     several, an operator has to choose.
//  3. Else wait: a node that does not answer may be the member of a cluster.
//
// Each step can be repeated: the identity is written last, and without one the node begins again.

// askTime bounds a question while this node has no identity.
const askTime = 2 * time.Second

// enter returns when the node has an identity. An error means that the process has to end.
func (n *Node) enter(ctx context.Context) (*identity, error) {
	again := time.NewTicker(n.cfg.Pace.Ask)
	defer again.Stop()
	for {
		id, err := n.tryToEnter(ctx)
		if id != nil || errors.As(err, new(fatalError)) {
			n.mu.Lock()
			n.trouble = ""
			n.mu.Unlock()
			return id, err
		}
		n.setTrouble(err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-again.C:
		}
	}
}

// fatalError is a reason not to try again.
type fatalError struct{ error }

// Unwrap returns the reason.
func (e fatalError) Unwrap() error { return e.error }

// setTrouble notes why the node is not a member yet, and logs it when it changes.
func (n *Node) setTrouble(err error) {
	n.mu.Lock()
	same := n.trouble == err.Error()
	n.trouble = err.Error()
	n.mu.Unlock()
	if !same {
		n.cfg.Log.Warn().Msg("not a member of the cluster yet: " + err.Error())
	}
}

// tryToEnter does one round. It returns nil without an error if the seed is another node.
func (n *Node) tryToEnter(ctx context.Context) (*identity, error) {
	records, of, err := holds(n.cfg.Store)
	if err != nil {
		return nil, fatalError{err}
	}
	answers, silent := n.askAll(ctx)
	for _, s := range answers {
		if s.Cluster != "" {
			return n.join(ctx, answers, records, of)
		}
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("waiting for %s", strings.Join(silent, ", "))
	}
	seed, err := n.seed(answers, records)
	if err != nil {
		return nil, err
	}
	if seed != n.cfg.ID {
		return nil, fmt.Errorf("waiting for %s, which forms the cluster", seed)
	}
	id, err := n.form(of)
	if err != nil {
		return nil, fatalError{fmt.Errorf("form the cluster: %w", err)}
	}
	return id, nil
}

// askAll asks all other nodes for their status.
func (n *Node) askAll(ctx context.Context) (answers []*Status, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, p := range n.cfg.Peers {
		if p.ID == n.cfg.ID {
			continue
		}
		all.Go(func() {
			s, err := n.askStatusOf(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if reason, ok := errors.AsType[refusedError](err); ok {
					silent = append(silent, fmt.Sprintf("%s (%s)", p.ID, reason))
				} else {
					silent = append(silent, p.ID)
				}
				return
			}
			answers = append(answers, s)
		})
	}
	all.Wait()
	slices.Sort(silent)
	slices.SortFunc(answers, func(a, b *Status) int { return strings.Compare(a.Node, b.Node) })
	return answers, silent
}

// askStatusOf asks one node for its status.
func (n *Node) askStatusOf(ctx context.Context, p Peer) (*Status, error) {
	reply, err := n.port.ask(ctx, p.Addr, askStatus, nil)
	if err != nil {
		return nil, err
	}
	var s Status
	if err := json.Unmarshal(reply, &s); err != nil {
		return nil, err
	}
	if s.Node != p.ID {
		return nil, refusedError(fmt.Sprintf("%s is the address of node %s", p.Addr, s.Node))
	}
	return &s, nil
}

// seed returns the node that forms the cluster. Every node finds the same one, as all have answered.
func (n *Node) seed(answers []*Status, records bool) (string, error) {
	own := ids(n.cfg.Peers)
	var with []string
	if records {
		with = append(with, n.cfg.ID)
	}
	for _, s := range answers {
		if !slices.Equal(s.Peers, own) {
			return "", fmt.Errorf("cluster.peers is %s here and %s on %s: it must be the same on all nodes", strings.Join(own, " "), strings.Join(s.Peers, " "), s.Node)
		}
		if s.Records {
			with = append(with, s.Node)
		}
	}
	slices.Sort(with)
	switch len(with) {
	case 0:
		return own[0], nil
	case 1:
		return with[0], nil
	default:
		return "", fmt.Errorf("the stores of %s hold data: which of them is it? Empty storage.path and cluster.path of the others", strings.Join(with, " and "))
	}
}

// ids returns the sorted ids of nodes.
func ids(peers []Peer) []string {
	all := make([]string, len(peers))
	for i, p := range peers {
		all[i] = p.ID
	}
	slices.Sort(all)
	return all
}

// form makes this node a cluster of one, with what its store holds. of is the cluster that the store
// was claimed for: this one, if an earlier attempt was interrupted.
func (n *Node) form(of string) (*identity, error) {
	if of == "" {
		of = uuid.NewString()
	} else if r, err := replica.ReadRecord(n.cfg.Store); err != nil || r.Index > 0 {
		return nil, errors.Join(err, fmt.Errorf("storage.path was a part of the cluster with the id %s, whose cluster.path is missing", of))
	}
	id := &identity{Format: identityFormat, Cluster: of, Name: n.cfg.Name, Node: n.cfg.ID, Admitted: 1}
	var users map[string]string
	if n.cfg.Users != nil {
		users = n.cfg.Users()
	}
	if err := replica.Claim(n.cfg.Store, id.Cluster, users); err != nil {
		return nil, err
	}
	if err := n.step(stepClaimed); err != nil {
		return nil, err
	}
	if err := n.emptyRaft(); err != nil {
		return nil, err
	}
	// The cluster begins with a snapshot of this store in the place of a first entry, so that all
	// other nodes get a copy.
	own := n.own()
	meta := &snapshotMeta{
		Format: snapshotFormat, Index: 1, Term: 1, ConfigurationIndex: 1,
		Configuration: raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(own.ID), Address: raft.ServerAddress(own.Addr)}}},
	}
	if err := n.cfg.Store.Sync(); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(n.raftDir(), snapshotFile), meta); err != nil {
		return nil, err
	}
	if err := n.step(stepBegun); err != nil {
		return nil, err
	}
	if err := id.write(n.cfg.Dir); err != nil {
		return nil, err
	}
	n.cfg.Log.Info().Str("cluster", id.Cluster).Msg("a cluster is formed with the data of this node")
	return id, n.step(stepNamed)
}

// The steps of forming and joining. A crash between two of them loses nothing: the next start goes on.
const (
	stepClaimed  = "the store is that of a node"
	stepEmptied  = "Raft's directory is empty"
	stepBegun    = "the cluster has its first snapshot"
	stepAdmitted = "the leader has admitted this node"
	stepNamed    = "the identity is written"
	stepOpened   = "the log is open"
	stepArrived  = "a copy of the data has arrived"
	stepAdopted  = "the copy is in the place of the store"
	stepNoted    = "the metadata of the copy is written"
)

// step says that a step is done.
func (n *Node) step(done string) error {
	if n.cfg.step == nil {
		return nil
	}
	return n.cfg.step(done)
}

// emptyRaft removes what an interrupted attempt has left.
func (n *Node) emptyRaft() error {
	if err := os.RemoveAll(n.raftDir()); err != nil {
		return err
	}
	if err := os.Mkdir(n.raftDir(), 0o750); err != nil {
		return err
	}
	if err := syncDirectory(n.cfg.Dir); err != nil {
		return err
	}
	return n.step(stepEmptied)
}
