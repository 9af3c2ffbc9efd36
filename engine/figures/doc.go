// Package figures counts what queues and fairness keys do, and keeps what is shown of it: events, messages
// by status, durations, shares of the last minute, the busiest keys, the top keys of a sweep, and the
// histories of queues and keys, of which it makes the records. It knows no messages, transactions, clients or clock.
//
// # Values in, figures out
//
// The engine has a [Queue] in each of its queues, a [Key] in each of its fairness keys, and one [All].
// It says what has happened, with numbers, times and names. A queue changes the sums of all queues
// in the same call, so that both are read in constant time and agree (33). One message goes like
// this:
//
//	an enqueue    q.Count(Enqueued, 1)          the event, of the queue and of all
//	              q.Change(Messages{Total: 1})  it is ready: neither leased nor delayed
//	a delivery    q.Took(&key, name, now, cost) the key's deliveries and share; it may be among the busiest now
//	              q.Count(Rounds, n)            of deficit round robin, that the delivery took
//	              q.Change(Messages{Leased: 1})
//	              q.Delivered(waited)           the event, and how long it was ready
//	an ack        q.Acked(&key)                 the event
//	              q.Held(OutcomeAcked, held)    how long it was leased
//	              q.Change(Messages{Leased: -1}), then q.Left(&key)
//	              q.Forgotten(&key, ...)        if it was the key's last: its statistics stay, by name or in a sum
//	a reply       sweep.Recent(now, age, end)   false: the engine walks all keys with sweep.Add, in slices, and
//	              sweep.Conclude(&q, now)       concludes each queue; the requests that wait share it
//	              q.Counts(keys), q.Swept(), q.Durations().Summaries()
//
// Each figure of a command, a metric and the dashboard is read from one of these three: [Queue.Counts] and
// [All.Counts] have the counts, [Queue.Durations] the durations, [Queue.Swept] what a sweep has found.
//
// All calls are on the goroutine of the loop. Those of an enqueue, a delivery and an ack neither allocate
// nor call through an interface.
//
// # Files
//
//	counts.go     Events, Messages, Counts: what is counted
//	queue.go      Queue and All: what counts it; the sums, and what outlives a recovery
//	durations.go  how long messages waited and were leased
//	key.go        Key: deliveries and the share of the last minute
//	idle.go       statistics of keys without messages
//	busiest.go    the keys with the most deliveries
//	trouble.go    what operators should look at: the rule of troubles, and queues grouped by them
//	listing.go    pages of queues, sorted by a column
//	sweep.go      one look at all keys, for all requests: states, the oldest message, the top keys
//	history.go    what queues did in the last day, and what is written of it
//	followed.go   what fairness keys did in the last hour: which of them are followed
package figures
