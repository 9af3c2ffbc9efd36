// Package dispatch decides what is delivered next: in which order the fairness keys of a queue, and
// the queues that share a throttle, have their turns. It knows keys with weights, and of the message at
// the head of each its cost and what limits it. It knows no messages, clients, records, tasks or clock.
//
// # Values in, one step out
//
// The engine says what stands at the head of a key ([Queue.Set], after each change), whether a consumer
// waits for a queue ([Queue.Demand]), and what has ended ([Order.End]). It asks for the queue that is
// served next ([Order.Ready]) and for the key that delivers next ([Queue.Next]). It calls the
// engine through two small interfaces only, [Host] and [Budget]. One message goes like this:
//
//	an enqueue      Set(k, Head{Ready, ...})   the key joins its class; the queue is offered if a consumer waits
//	the serve step  Ready() = q                its consumers are served, in the order of their arrival
//	                Next() = k                 throttles admit it, budgets cover it; nothing is taken yet
//	                Take(k)                    credit, tokens, slots and turns; the engine leases the message
//	                Set(k, ...)                the next message of the key, or Empty
//	an ack          Settle(set, ...)           where it says what was used: throttles by cost take that in place of the cost
//	                End(set)                   the slots are free: throttles are listed, Ready gives them away
//
// # Files
//
//	order.go     Order: what the engine calls; throttles by name, timers
//	queue.go     Queue: its classes, and how a key moves between them; Next and Take
//	key.go       Key and Head; what throttles have done to a key
//	class.go     classes of keys that name the same throttles and budgets
//	calendar.go  the keys of a class in the order of their rounds
//	throttle.go  a token bucket and slots; Set: what limits a message, in set.go
//	line.go      which class is next at a throttle
//	grant.go     the cursor over throttles and budgets that have room to give away
//	claims.go    what is kept for messages that need several throttles, or many tokens
//	own.go       throttles that one key alone names
//	hold.go      throttle keys that are closed until a time
//	pattern.go   settings for all throttle keys with a prefix, and their instances
//	gate.go      keys that wait for budgets
//	explain.go   why a key waits
//	check.go     the invariants, for tests; inside.go, what else tests see
//
// # The order within a queue
//
// It is weighted deficit round robin over the fairness keys of the queue (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
// Round Robin", SIGCOMM 1995). Each round visits every key that has messages. A visit grants
// the key a credit of weight x quantum. The key delivers for as long as its credit covers the
// cost of its next message, and keeps the rest of the credit for its next visit.
//
// The scheduler does not walk round the keys in search of one with enough credit. It computes
// the round in which the credit of each key suffices, and keeps the keys in a calendar by that
// round (calendar.go). A delivery therefore takes O(1) where costs fit into a round and O(log
// keys) elsewhere, whatever the messages cost. The order is that of the walk: a key keeps its
// position in the circle for as long as it has messages, and within a round keys are visited in
// the order of their positions. A key that joins is placed before the key that is next, so each
// of the other keys is visited at most once before it.
//
// While two keys both have messages and their weights do not change, what they got per unit of
// weight differs in any interval by at most
//
//	quantum + Max/weight_i + Max/weight_j
//
// where Max is the largest cost of a message at the head of a key. This is the bound of deficit
// round robin.
//
// # Classes
//
// A class is the set of keys of a queue whose next messages name the same throttles. Each class
// has a calendar and a clock of its own. A throttle without room stops the class as a whole, so
// the cost of stopping does not depend on the number of its keys. Where one key alone names a throttle, as
// with a limit for each tenant, there is no class for it: own.go. States and transitions:
//
//	idle     no keys. Retained for a while, because the next message often needs it.
//	open     in the queue's heap of open classes. The class whose key is due first
//	         delivers next.
//	waiting  in the line of a throttle that had no room, see line.go.
//
//	idle → open      joinClass: a key joins
//	open → waiting   block: a consumer asked and a throttle had no room
//	waiting → open   open: the throttle has room and the turn is the class's
//	any → idle       idleClass: the last key leaves
//
// The clock of a class stops while the class is not open. When the class opens, all of its keys
// are due later by as many rounds as the queue has advanced in the meantime. The order and the
// shares of the keys are preserved, and a class does not catch up on the time for which a
// throttle stopped it.
//
// # Glossary
//
//	credit                what a fairness key may still consume; below zero after what it has consumed ahead
//	quantum               the credit per unit of weight that a key gets in each round
//	round                 one pass of deficit round robin over all active keys of a queue
//	instance              the throttle of a key that has the limits of a pattern
//	throttle set          the throttles that one message names
//	token, burst          what a delivery takes from a token bucket; the capacity of the bucket
//	debt                  tokens below zero, after a delivery that took more than the burst
//	concurrency slot      the right to one live lease under a throttle
//	in use                the number of live leases that a throttle counts
//	adaptive throttle     one whose limit of live leases follows how work goes
//	cut                   the reduction of that limit by a failure
//	admit                 have the tokens and a slot free for a message
//	consume               take tokens and a slot of each throttle of a message
//	class                 the keys of a queue whose next messages name the same throttle set
//	entry                 the place of a queue in the line of a throttle
//	claim                 the right of a class with several throttles to capacity that appears
//	reserved              capacity of a throttle that is kept for a claim
//	saved                 tokens by cost that accumulate for the class that is next
//	held                  waiting for a budget to cover the next message of a key
//	draw                  a class at one of the budgets of its messages
package dispatch
