package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// Equal stores are what replication promises, and Verify tries it: an entry of the log has each node
// hash its store as it is at that entry.
//
//	leader                          each node
//	proposes the entry ───log────►  opens iterators at the entry, hashes beside what follows
//	asks for the digests ────────►  "not yet", or the digest
//	finds the majority's
//	tells it to those that differ►  compares by itself, notes it beside the identity, ends
//
// A node that has the entry in its store already, because it started again since, has no digest of it.

// Verification is what Verify has found.
type Verification struct {
	Index uint64     `json:"index"` // of the entry
	Nodes []Verified `json:"nodes"` // in the order of their ids
}

// Verified is the store of one node.
type Verified struct {
	Node    string `json:"node"`
	Result  string `json:"result"`  // equal, differs or unknown
	Digest  string `json:"digest"`  // hexadecimal; empty: unknown
	Records uint64 `json:"records"` // that were hashed
	Trouble string `json:"trouble"` // why Result is unknown
}

// Results of Verified.
const (
	VerifiedEqual   = "equal"   // to the store of a majority of those that are known
	VerifiedDiffers = "differs" // from it; if there is no majority, from the others
	VerifiedUnknown = "unknown"
)

const (
	digestsMax    = 4                      // digests that a node keeps
	digestPause   = 100 * time.Millisecond // between two questions for a digest
	digestStep    = 1024                   // records between two looks whether to stop
	differsFile   = "differs"
	differsAdvice = "empty storage.path and cluster.path of this node, and it joins again"
)

// digest is that of the store at an entry.
type digest struct {
	Index   uint64 `json:"index"`
	Begun   bool   `json:"begun"` // the node has come to the entry
	Over    bool   `json:"over"`  // the following is known
	Sum     string `json:"sum"`
	Records uint64 `json:"records"`
	Trouble string `json:"trouble"` // why there is none; empty: there is
}

// digests are the latest digests of this node.
type digests struct {
	mu    sync.Mutex
	all   []*digest // the newest last
	stop  atomic.Bool
	alone sync.WaitGroup // the hashing under way
}

// begin begins to hash the store at an entry. The caller applies entries, and nothing is applied until
// it returns. stale reports whether the store is about to be reopened, which waits for iterators.
func (d *digests) begin(index uint64, store LocalStore, stale func() bool) {
	d.mu.Lock()
	busy := len(d.all) > 0 && !d.all[len(d.all)-1].Over
	g := &digest{Index: index, Begun: true}
	if busy {
		g.Over, g.Trouble = true, "an earlier digest is being made"
	}
	if d.all = append(d.all, g); len(d.all) > digestsMax {
		d.all = d.all[1:]
	}
	d.mu.Unlock()
	if busy || d.stop.Load() {
		return
	}
	var iterators []storage.Iterator
	for _, f := range storage.Families() {
		if f != storage.Default { // the format, which is the node's own
			iterators = append(iterators, store.Scan(f, nil, nil))
		}
	}
	d.alone.Go(func() {
		sum, records, err := hashAll(iterators, func() bool { return d.stop.Load() || stale() })
		d.mu.Lock()
		defer d.mu.Unlock()
		g.Over, g.Sum, g.Records = true, sum, records
		if err != nil {
			g.Trouble = err.Error()
		}
	})
}

// end stops the hashing under way.
func (d *digests) end() {
	d.stop.Store(true)
	d.alone.Wait()
}

// at returns the digest at an entry, nil if there is none.
func (d *digests) at(index uint64) *digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.all {
		if g.Index == index {
			found := *g
			return &found
		}
	}
	return nil
}

// hashAll hashes all records and closes the iterators.
func hashAll(iterators []storage.Iterator, stop func() bool) (sum string, records uint64, err error) {
	h := sha256.New()
	for i, it := range iterators {
		if err == nil {
			var n uint64
			n, err = hashFamily(h, i, it, stop)
			records += n
		}
		it.Close()
	}
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), records, nil
}

func hashFamily(h hash.Hash, family int, it storage.Iterator, stop func() bool) (records uint64, err error) {
	var head [3 * 8]byte
	for it.Next() {
		if records%digestStep == 0 && stop() {
			return 0, errors.New("the store was closed or reopened meanwhile")
		}
		key, value := it.Key(), it.Value()
		binary.BigEndian.PutUint64(head[:], uint64(family))
		binary.BigEndian.PutUint64(head[8:], uint64(len(key)))
		binary.BigEndian.PutUint64(head[16:], uint64(len(value)))
		for _, b := range [][]byte{head[:], key, value} {
			_, _ = h.Write(b) // never fails
		}
		records++
	}
	return records, it.Err()
}

// verify is Verify, on the leader.
func (n *Node) verify(ctx context.Context) (*Verification, error) {
	term := n.raft.CurrentTerm()
	e := replica.Entry{Term: term, Digest: true, Parts: 1}
	f := n.raft.Apply(e.Append(nil), 0)
	if err := f.Error(); err != nil {
		return nil, err
	}
	if err, ok := f.Response().(error); ok {
		return nil, err
	}
	v := &Verification{Index: f.Index()}
	members := n.Members()
	v.Nodes = make([]Verified, len(members))
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() { v.Nodes[i] = n.digestOf(ctx, &members[i], v.Index) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sum := v.judge()
	for i := range v.Nodes {
		if sum != "" && v.Nodes[i].Result == VerifiedDiffers {
			n.convict(ctx, &members[i], digest{Index: v.Index, Sum: sum})
		}
	}
	return v, nil
}

// judge compares the digests, and returns that of the majority of those that are known, empty if there
// is none.
func (v *Verification) judge() string {
	count, known := map[string]int{}, 0
	for i := range v.Nodes {
		if sum := v.Nodes[i].Digest; sum != "" {
			count[sum]++
			known++
		}
	}
	majority := ""
	for sum, n := range count {
		if n > known/2 {
			majority = sum
		}
	}
	for i := range v.Nodes {
		switch v.Nodes[i].Digest {
		case "":
			v.Nodes[i].Result = VerifiedUnknown
		case majority:
			v.Nodes[i].Result = VerifiedEqual
		default:
			v.Nodes[i].Result = VerifiedDiffers
		}
	}
	return majority
}

// digestOf asks a member for its digest until it is there. It does not wait for one that does not come to
// the entry: its store may take no writes until there is space again.
func (n *Node) digestOf(ctx context.Context, m *Member, index uint64) Verified {
	v, asked := Verified{Node: m.Node}, time.Now()
	again := time.NewTicker(digestPause)
	defer again.Stop()
	for failed := 0; ; {
		g, err := n.askDigestOf(ctx, m, index)
		switch {
		case err != nil:
			v.Trouble = err.Error()
			if failed++; failed == silentAfter {
				return v
			}
		case g.Over:
			v.Digest, v.Records, v.Trouble = g.Sum, g.Records, g.Trouble
			return v
		case !g.Begun && time.Since(asked) > n.cfg.Pace.Begin:
			v.Trouble = fmt.Sprintf("the node has not come to entry %d of the log for %s", index, n.cfg.Pace.Begin)
			return v
		}
		select {
		case <-ctx.Done():
			v.Trouble = ctx.Err().Error()
			return v
		case <-again.C:
		}
	}
}

func (n *Node) askDigestOf(ctx context.Context, m *Member, index uint64) (*digest, error) {
	if m.Node == n.cfg.ID {
		return n.digest(index), nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	reply, err := n.port.ask(ctx, m.Addr, askDigest, binary.BigEndian.AppendUint64(nil, index))
	if err != nil {
		return nil, err
	}
	g := new(digest)
	return g, json.Unmarshal(reply, g)
}

// digest returns the digest of this node at an entry that was committed.
func (n *Node) digest(index uint64) *digest {
	n.mu.Lock()
	f := n.fsm
	n.mu.Unlock()
	if f == nil {
		return &digest{Index: index, Over: true, Trouble: "the node is no member yet"}
	}
	passed := f.passed(index) // before the look: the digest begins earlier
	if g := f.digests.at(index); g != nil {
		return g
	}
	g := &digest{Index: index}
	if passed {
		g.Over, g.Trouble = true, "the node has started again since"
	}
	return g
}

// convict tells a node that its store differs.
func (n *Node) convict(ctx context.Context, m *Member, of digest) {
	n.cfg.Log.Error().Str("node", m.Node).Uint64("entry", of.Index).Msg("the store of a node differs from that of the majority")
	if m.Node == n.cfg.ID {
		n.convicted(of)
		return
	}
	body, err := json.Marshal(of)
	if err == nil {
		err = n.tellVerdict(ctx, m, body)
	}
	if err != nil { // the next comparison tells it

		n.cfg.Log.Warn().Err(err).Str("node", m.Node).Msg("the node was not told that its store differs")
	}
}

func (n *Node) tellVerdict(ctx context.Context, m *Member, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := n.port.ask(ctx, m.Addr, askVerdict, body)
	return err
}

// convicted ends this node if its digest at an entry is another than that of the majority. A file
// beside the identity keeps it from starting again with this store.
func (n *Node) convicted(majority digest) {
	own := n.digest(majority.Index)
	if !own.Over || own.Sum == "" || own.Sum == majority.Sum {
		return
	}
	err := fmt.Errorf("at entry %d of the log the store of this node has the digest %s, and those of the others %s: %s", majority.Index, own.Sum, majority.Sum, differsAdvice)
	if noted := writeJSON(filepath.Join(n.cfg.Dir, differsFile), majority); noted != nil {
		err = errors.Join(err, noted)
	}
	n.fatal(err)
}

// checkDiffers refuses to start with a store that Verify has found to differ.
func checkDiffers(dir string) error {
	_, err := os.Stat(filepath.Join(dir, differsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.New("the store of this node was found to differ from those of the others: " + differsAdvice)
}
