// Package window keeps in memory the head of what is on disk: the next messages of a fairness key
// ([Window]), and the next entries of an index by time ([Index]). It knows their positions, and no
// messages, bodies, records or clock.
//
// # What is in memory
//
// The disk has everything, in the order of positions. An edge divides it: what is before the edge is in
// memory as well, what is at the edge or behind it is on disk only. So memory is bounded by what is about
// to be needed, not by what is stored.
//
//	positions:  [ head: memory and disk ) edge [ disk only )
//
//	complete    no edge     everything is in memory
//	partial     an edge     the head has entries, more are on disk only
//	awaiting    an edge     the head is empty: what comes next is known only after a read
//
//	complete → partial               the head is full or is cut: the edge retreats to an earlier position
//	complete, partial → awaiting     the head was used up, or an entry is added before the others and on disk only
//	partial → partial                the edge retreats again
//	partial, awaiting → any          a read is merged: the edge advances behind what it has found
//
// # What a read may miss
//
// A read runs off the loop. It describes the disk at one time and is merged later, so that the changes
// in between are recorded, relative to the edge at which it began:
//
//	added behind the edge      the read may have missed it. Its result holds only before the first of
//	                           these (unseen): the edge stops there, and the next read finds the entry.
//	changed behind the edge    the read may have found a former state. The entry is left out (changed):
//	                           its state is known in memory, or it was added again and is not before unseen.
//	the edge has retreated     the result would leave a gap: the read is stale, and another one is needed.
//
// Changes before the edge need no record, as the read does not look there. The states of a read:
//
//	none        nothing is needed, or nothing has been asked for
//	requested   the head runs low
//	urgent      the head is empty
//	issued      the read is under way
//	backed off  the last read failed: the engine resumes later
//
//	none → requested → urgent         Request
//	requested, urgent → issued        Issue
//	none → issued                     Index.Issue: an index is asked for nothing before
//	issued → none                     End, then Merge
//	any → backed off                  BackOff; the result of a read under way is dropped
//	backed off → none                 Resume
//
// # One mechanism, two heads
//
// The edge, the changes during a read and the merge are the same for both, and generic in the position
// (edge.go). What holds the head differs. The messages of a key leave it at its beginning and join it
// at its end, millions of keys have one, and each message touches it: it is a slice whose memory is a
// part of the key while it is short. An index has two heads in a process, of thousands of entries that come in any
// order and leave by the id of their message or by queue: it is a heap with look-ups.
package window
