// Package engine decides which message is delivered to which consumer, when, and what becomes
// of it. It knows queues, fairness keys, leases and timers. It does not know connections,
// protocols or the disk, which it reaches through [Store].
//
// # One goroutine, one function
//
// A core is state and a function of state, time and tasks: turn (core.go). The steps of a turn
// never change order: expire timers, apply tasks, serve waiting consumers. A turn adds its
// writes to the open batch of the outbox, and its replies, events and off-loop jobs with them.
// cut takes them out together. Replies leave after the commit of their batch, except early
// replies (outbox.go), which promise nothing that the commit could lose. Where another node may
// take over, some wait for a confirmation as well (core.go).
//
// A turn never waits, reads no clock and starts no goroutine, and its only source of randomness
// is the seed. The same sequence of turns therefore always has the same results. A driver runs the
// turns of a [Machine]: package loop with goroutines and a clock, which this package cannot have, as it
// may not import them; [Stepper] lets tests control the time and the turns.
//
// # Files
//
// A file is named after what it contains. The methods of [Tx] are what commands call; those of
// one verb are in the file of that name: lease.go, nack.go, cancel.go, redrive.go; Ack, Extend and Release in leases.go.
//
//	config/ config.go                a package: parameters of the engine; what it exports of parameters, limits and errors
//	core.go                          the turn; the list of components
//	dispatch/                        a package: what is delivered next, within throttles and budgets
//	plan/ queue_apply.go             a package: settings that are given, and what makes queues match a file; carrying it out
//	order.go serve.go                the engine as dispatch knows it; where messages meet consumers
//	queue.go queue_set.go            a queue; all queues, by name and by number
//	message.go meta.go               a message in memory; what its producer said about it
//	enqueue.go enqueue_hook.go       the command that stores messages; the on_enqueue hook, on the connection
//	throttles.go holds.go            commands about throttles, and about throttle keys that are closed until a time
//	window/                          a package: what is in memory of keys and due-time indexes, and reads
//	key.go prefetch.go read.go       a fairness key; cache lines ahead of use; when windows are read
//	ordered.go                       queues that deliver one message of a key at a time
//	gather.go                        keys that wait until they have a batch
//	budget/                          a package: accounts of prepaid credits, what moves them and what is written then
//	accounts.go                      commands about budgets; look-ups of ids of movements
//	charges.go budget_gate.go        what leases reserve of budgets; what keys that wait for credits need of them
//	group/                           a package: groups of messages that are done together, counts of their members, sweeps
//	groups.go group_end.go           commands about groups; what happens when members end
//	result.go done.go                clients that wait for results; the records of ends
//	ids/                             a package: ids for which a queue has one message, and where records of ends are
//	ids.go dedup.go                  the component of ids; deduplication
//	unique.go replace.go             uniqueness; a message in the place of another
//	wait.go tasks.go                 parked tasks, the task queue
//	turn/                            a package: the work of a turn, and of a transaction
//	backups/                         a package: the backup that is under way, and how the last one ended
//	census/ operations.go            a package: what is counted of a store at a start; the census, redrives and backups
//	transaction.go                   calls that take effect together
//	machine.go stepper.go            the engine as what drives it sees it; a driver for tests
//	preparer.go                      what connections do on their own goroutines
//	outbox.go work.go jobs.go        the open batch; a batch on its way to the store; what runs off the loop after it
//	event/                           a package: what events say, and which of them have subscribers
//	due.go                           delayed messages
//	lease_table.go                   live leases and their records
//	delivery/                        a package: what is handed out, receipts, and what is noted of leases in memory only
//	consumers/ consumers.go          a package: clients that wait or hold leases; what is shown of them
//	lease.go leases.go               the command that leases; the ends of leases
//	removal.go                       times to live; removal of messages, and what purged queues have left in memory
//	health.go                        whether the store takes writes
//	figures/                         a package: what is counted and shown of queues and keys
//	counts.go figures.go             what has been counted; figures of all queues and keys, for operators
//	history.go                       what queues and followed keys did in the last day
//	keys.go inspect.go               commands that describe fairness keys; those that explain states, and describe queues and hooks
//	states.go                        why messages of keys and queues are where they are
//	signals/ signals.go              a package: sums that fade with time; commands about them
//	settings/ settings.go            a package: configuration, users, settings of keys, holds, acts; commands about them
//	cron/                            a package: recurring messages, their ticks, and what becomes of missed ones
//	cron.go cron_tick.go             commands about recurring messages; the messages of ticks
//	scripts/ hooks.go                a package: compiling hooks, and their histories; commands about scripts
//	topic/ topic.go                  a package: topics and the bindings of queues to them; commands about them
//	publish.go                       a message for all queues that are bound to a topic
//	body/ bodies.go                  a package: which bodies no message holds; payloads that messages of several queues share
//	changes/ reading.go              a package: what happens while others read; reads of messages of any status
//	redriving/ redrive.go            a package: how far a redrive is; the command that moves dead messages back
//	search/ browse.go                a package: filters, pages and cursors; commands that show messages
//	snapshot.go                      what connections read of the engine
//	clock/ time.go                   a package: the time, which never goes back, and the calendar; the component that writes it
//	recover.go                       rebuilding memory from the store
//	invariants.go                    the checks of the invariants below
//
// # Memory is a window on the disk
//
// Everything that a reply has promised is in the store. Memory has what is about to happen: the
// head cache of each fairness key (key.go), the heads of the due-time indexes (due.go), and all
// live leases. Off-loop reads (read.go) refill head caches. Where memory ends, and what a read may
// miss, is in package window.
//
// # Invariants
//
// Stepper.Check verifies these after each step of the simulation. A check names an invariant by
// its number.
//
//  1. Queues and keys are found under their names, and queues also under their numbers.
//  2. A key is in a class of its queue if and only if it is not paused, does not gather and has ready messages,
//     in its head cache or in its backlog on disk. Keys whose last read found nothing are in no
//     class. A class is in the heap of its queue if and only if it is open. A queue counts its
//     keys whose ready messages are all on disk.
//  3. The number of leased messages of a queue is the sum over its keys.
//  4. A total counts the ready, leased and delayed messages, each of them once.
//  5. After a turn, no consumer waits for a queue with a message in memory that all of its
//     throttles admit, or with an open class, unless a key that comes first is being read from disk.
//  6. The messages in head caches are counted. Those of a purged queue (removal.go) count
//     until they are reclaimed.
//  7. The bytes of bodies in memory are counted, by the same rule.
//  8. The heads of the due-time indexes (delays, times to live) contain the entries before their
//     edges, and list them by queue.
//  9. A head cache contains ready messages before the edge, in the order of their positions.
//  10. A body stays in memory until the store has it.
//  11. A message is in one structure at a time.
//  12. A key without an edge has no backlog on disk: all of its messages are in memory or delayed.
//  13. A key with an empty head cache and a backlog on disk has requested a read.
//  14. A key without messages is forgotten.
//  15. Each lease has one timer, and timers are in order. Notes are of leases, and their texts are counted (package
//     delivery).
//  16. A leased message belongs to an existing key or to a key of a purged queue. The latter
//     are counted.
//  17. A waiting class is in the entry of its queue at a throttle that it names. A throttle
//     counts the keys that name it and those that wait in its line.
//  18. A throttle counts the leases that name it. The leases that name a throttle key without a
//     setting are counted as well.
//  19. The credit of a key is negative only after messages that were delivered ahead of its turn (SAMEKEY). With
//     what the rounds until its turn add, it covers the next message then. An empty key has none left.
//  20. Where a throttle has room for the class that is next, and is neither listed nor under the
//     cursor of grant, no class waits in its line, except classes of a queue that has another class open there, or that has no waiting consumer
//     under a throttle by cost. Room is reserved only for a claim, and only while the queue of
//     the claim has a waiting consumer. The first claim at all throttles of its class is served once they have room, with
//     what is reserved for later ones, unless its queue has a class open.
//  21. A recurring message is in exactly one state: waiting for its next tick, making a message
//     in the round in progress, or waiting for its bounded queue to be counted. Package cron checks this.
//  22. Idle-key statistics are of keys without messages, at most one entry for each key, and
//     bounded in number.
//  23. The head of a class is due before the other keys of the class, no key is due before the
//     present round of its class, and a class counts its keys and their weights.
//  24. A task that waits for messages has no reply yet. A queue counts the requests that wait for
//     results of its messages.
//  25. The history of a hook has a bounded number of sources, each once and in the order of
//     their numbers. The bytes of all histories are counted. Package scripts checks this.
//  26. The list of a queue's busiest keys has those with the most deliveries, except while keys
//     of a purge are being reclaimed.
//  27. Signals are found by subject and name, and each of them is listed once. If one has
//     additions that no record has, a checkpoint is due or under way. Package signals checks this.
//  28. Budgets are found under their names. Those that have changed since the last cut are
//     listed, and no other. A budget has a calendar if and only if it has a refill. The days
//     of the ledger contain its newest entry. Package budget checks this.
//  29. A budget has reserved the charges of the leases that name it, each of them once. The engine
//     adds up the leases, package budget compares.
//  30. A key that waits for a budget is in draw.held of its class and not in the calendar, with
//     the charge of its next message. A draw with such keys is in the line of its budget unless
//     it has a loose key. No draw is in a line whose budget covers one of its keys.
//  31. Topics are found under their names, and listed once. A topic has 1 to 1,000 bindings in the
//     order of its queues, which exist and know it. The snapshot has the same. Package topic checks this.
//  32. Of a key of an ordered queue, at most one message is leased or retrying, and the queue
//     knows which. It has no delayed messages, and counts those that are retrying.
//  33. The sums of all queues are those of their counters and of their messages.
//  34. A body that is counted is counted with at least the messages in memory that hold it.
//  35. The time that was written last has been reached.
//  36. The order of delivery has been told what stands at the head of each key.
//  37. A pattern counts its instances and their leases. An instance that nothing names is to be forgotten, and
//     no instance keeps limits of which a sweep has passed.
//  38. The register of consumers has each live lease, and each consumer that waits in the line of a queue, once.
//  39. A key gathers if and only if its queue has a BATCH, it has fewer ready messages and its time has not come. It has
//     one timer then.
//  40. A throttle key that is held has a throttle that knows until when, and no other has. A throttle without
//     limits is of such a key. Each hold has one end, and they are at most Limits.Holds.
//  41. Groups are found under their names and numbers. The counts of a group are the sums over the queues that have
//     members of it. What has changed since the last cut is listed, and no other. A group that is over is listed.
//     Package group checks this.
//  42. A group counts at least its members in memory, in their queues. Package group checks this.
//  43. Followed keys are found under their names, and each of them in one place of the table of all. A queue has at most
//     figures.FollowedOfQueueMax of them, all queues figures.FollowedMax. Package figures checks this.
//
// Towards clients, the simulation's oracle verifies these:
//
//   - A reply leaves after the commit of what it reports, unless it is an early reply.
//   - A message has at most one live lease. A receipt has no effect after the end of its lease,
//     even if a crash has lost the record of the lease.
//   - No message id and no delivery number is given twice.
//   - No message is delivered before its due time or after its time to live.
//   - Within a key and a priority, first deliveries are in the order of enqueue.
//   - In an ordered queue, no delivery overtakes another of its key, and one is out at a time.
//   - A queue has at most one message with a unique id, and the id is free when it has none.
//   - A delivery carries the newest replacement that was answered before it was decided.
//   - The message of a group is stored once, in the write of the end of its last member, and counts of members are exact
//     after each write.
//   - No tick of a recurring message enqueues two messages, and a tick that enqueues none is
//     counted as missed.
//
// # Glossary
//
// The terms of docs/reference/glossary.md that this package uses. Names and comments use them in this
// meaning only. Packages dispatch, budget, cron, topic and group have those of their subjects.
//
// Messages:
//
//	queue                 a named set of messages with settings, scripts and usually a DLQ
//	message               a payload with headers: ready, delayed, leased or dead
//	message id            names a message; ids sort by time of enqueue and are never reused
//	ready                 deliverable, subject to scheduling, throttles and pauses
//	delayed               not ready until its due time
//	due time              when a delayed message becomes ready, or a timer fires
//	lease                 one delivery of a message; no other consumer gets it meanwhile
//	visibility timeout    the duration of a lease
//	deliveries            how many times a message has been delivered
//	delivery number       the number of a delivery, never reused: it fences off older receipts
//	receipt               the proof of a live lease: message id and delivery number
//	attempt               1 plus the number of failures
//	failure               a nack, or the expiry of a lease
//	ack, nack             end a lease successfully, or with a failure
//	release, extend       end a lease without a failure; set a new end for it
//	ordered queue         delivers a key's messages strictly one after the other
//	out                   of a message of an ordered queue: leased or retrying, so that its key waits
//	retrying              failed and waiting for its next attempt, in an ordered queue
//	lease expired         the visibility timeout has passed without an ack
//	message expired       the time to live has passed
//	time to live (TTL)    the time from enqueue after which a message expires
//	dead                  given up: moved to the dead-letter queue, or dropped
//	dead-letter queue     (DLQ) receives the dead messages of another queue
//	dead-letter           move a message to the dead-letter queue
//	redrive               move dead messages back to the queues in which they died
//	purge                 remove all messages of a queue or of a fairness key
//	deduplication window  the period in which enqueues with the same id give one message
//	unique id             an id that at most one message of a queue has, until that message ends or is leased
//	replacement           an enqueue that takes the place of the message with its unique id
//	result                what has become of a message, and the value of its ack
//	act                   a change by an administrator, with its user, its client, and the setting before and after
//	done                  acked; of a group: all of its members have ended
//	progress              what a consumer says about how far its work on a message is
//	signal                a sum that fades with time, for a pair of subject and name
//	subject               what a signal is about, such as a fairness key
//
// Scheduling and throttles:
//
//	fairness key (key)    the unit of fair scheduling within a queue, such as a tenant
//	weight                the relative share of a fairness key
//	cost                  the credit that one delivery of a message consumes
//	key batch             messages of one fairness key that a lease takes together
//	gather                of a key: wait until it has a batch, in no class
//	priority              the order of messages within a fairness key, 9 first
//	position              the place of a message in its key: priority, then id
//	backlog               ready messages that are not delivered
//	consumer, producer    a client that leases messages; one that enqueues them
//	paused                excluded from intake or delivery by an operator
//	throttle              a limit of rate, of concurrency, or both
//	pattern               a setting whose limits hold for each throttle key with a prefix
//	hold                  no message that names a throttle key is delivered before a time
//
// The engine, memory and disk:
//
//	task                  the calls of one client in one submission, or an off-loop result
//	inbox                 the bounded queue of tasks for the loop
//	turn                  one iteration of the loop
//	turn budget           the work that a turn may do, in units of about a microsecond
//	slice                 the part of a long operation that runs in one turn
//	batch, commit         writes that become durable together; the atomic write of them
//	batch linger          the short wait of an open batch for clients that are ready to send
//	committer             the goroutine that writes batches
//	outbox                the open batch, and what follows its commit
//	early reply           a reply before the commit, which the commit cannot invalidate
//	off-loop job          work on another goroutine, after the commit; its result is a task
//	waiter                a task that waits for messages, a read, a hook or a preflight
//	preflight             the reads and hooks that a transaction needs before its turn
//	delta, change log     a recorded change of a message; the deltas of a queue
//	deferred lease write  a lease record that is written some milliseconds after its reply
//	event dispatcher      sends events to subscribers
//	recovery              rebuilding memory from the store, at start or after a failed commit
//	simulation            a deterministic run of the engine under injected faults
//	head cache            the next messages of a fairness key, in memory
//	edge                  the position up to which a head cache or index is complete
//	backlog on disk       ready messages of a key behind its edge
//	window read           an off-loop read that refills a head cache
//	prefetch              read messages of a key before its head cache is empty
//	body                  the payload and headers of a message
//	detached              unreachable after a purge, and reclaimed incrementally
//	store                 what keeps the records: RocksDB or memory
//	hook, script          a decision that a script may make; its Lua source
//	safe defaults         the decision that is used when a script fails
package engine
