//go:build fault

package fault

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/faisca/fila/resp"
)

// The faults, by the values of PLANTED_FAULT.
const (
	replyBeforeCommit = "reply-before-commit" // a commit is acknowledged before it is written
	unsyncedReply     = "unsynced-reply"      // a commit that must be synced is not
	droppedAck        = "dropped-ack"         // every 50th acked message stays in the store
	lostLease         = "lost-lease"          // leases are not stored
	lostTimer         = "lost-timer"          // delayed messages are not found again
	unfencedReceipt   = "unfenced-receipt"    // an ack ends any lease of its message
	halfPublish       = "half-publish"        // every fifth publish to several queues stores one message less
	lostResult        = "lost-result"         // every 20th result of an ack is not stored
	unordered         = "unordered"           // queues are not ordered, whatever their settings

	// These are planted by internal/cluster, into the replicated log of a node.
	UnsyncedLog   = "unsynced-log"   // a sync of the log does nothing
	ForgottenVote = "forgotten-vote" // term and vote are in memory only

	// These break no promise: they hold a broker in a state that its health must show.
	slowRecovery = "slow-recovery" // the first look into the store takes until the file goOn is there
	readOnly     = "read-only"     // the store takes no more commits after that of markedQueue
	stuckLoop    = "stuck-loop"    // after that commit the recovery in the loop never ends
)

// fault wraps the parts that a promise depends on; nil: the part is not wrapped.
type fault struct {
	log     bool // internal/cluster asks Planted
	store   func(Store) Store
	session func(resp.Session) resp.Session
}

func faults() map[string]fault {
	return map[string]fault{
		replyBeforeCommit: {store: func(s Store) Store { return &lateStore{Store: s} }},
		unsyncedReply:     {store: func(s Store) Store { return unsyncedStore{s} }},
		droppedAck:        {store: func(s Store) Store { return &forgetfulStore{Store: s, drop: everyAck(50)} }},
		lostLease:         {store: func(s Store) Store { return &forgetfulStore{Store: s, drop: leases} }},
		lostTimer:         {store: func(s Store) Store { return timelessStore{s} }},
		unfencedReceipt:   {session: func(s resp.Session) resp.Session { return unfencedSession{s} }},
		halfPublish:       {store: func(s Store) Store { return &forgetfulStore{Store: s, drop: everyCopy(5)} }},
		lostResult:        {store: func(s Store) Store { return &forgetfulStore{Store: s, drop: everyResult(20)} }},
		unordered:         {session: func(s resp.Session) resp.Session { return unorderedSession{s} }},
		UnsyncedLog:       {log: true},
		ForgottenVote:     {log: true},
		slowRecovery:      {store: func(s Store) Store { return &slowStore{Store: s} }},
		readOnly:          {store: func(s Store) Store { return &failingStore{Store: s} }},
		stuckLoop:         {store: func(s Store) Store { return &failingStore{Store: s, hangs: true} }},
	}
}

// planted returns the fault named by the environment. It panics for an unknown name, since a test
// would otherwise judge a broker without a fault.
func planted() fault {
	name := os.Getenv("PLANTED_FAULT")
	f, known := faults()[name]
	if !known && name != "" {
		panic(fmt.Sprintf("PLANTED_FAULT=%s: want one of %q", name, slices.Sorted(maps.Keys(faults()))))
	}
	return f
}

// Planted reports whether a fault of the replicated log is planted.
func Planted(name string) bool {
	return planted().log && os.Getenv("PLANTED_FAULT") == name
}

// WrapStore returns a store with the planted fault, or s.
func WrapStore(s Store) Store {
	if wrap := planted().store; wrap != nil {
		return wrap(s)
	}
	return s
}

// WrapSession returns a session with the planted fault, or s.
func WrapSession(s resp.Session) resp.Session {
	if wrap := planted().session; wrap != nil {
		return wrap(s)
	}
	return s
}
