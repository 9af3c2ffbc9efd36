// Package engine decides: which message goes to whom, when, and what becomes of
// it. It knows queues, fairness keys, leases and timers; it does not know
// connections, protocols or the disk, which it reaches through [Store].
//
// # One thread, one function
//
// A core is state and a function of state, time and tasks: turn (core.go). Its
// steps never change order: expire, apply, serve. What a turn writes goes into
// the open batch, what it answers waits beside it; cut hands both on, and only
// after the commit of its batch is a task done, but for leases of what is in the
// store already (told.go). A turn never waits, reads no
// clock, starts nothing and takes no chances but from its seed. Engine (loop.go)
// gives it goroutines and a clock; [Stepper] gives tests their own.
//
// # Where things are
//
// A file is named after what it does: lease.go, ack.go, nack.go, throttle.go. A
// method of Tx in it is what the command of the same verb calls. scheduler.go is
// deficit round robin, admission.go decides which class of messages goes next when a
// throttle has room, key.go is a fairness key and its window, core.go the turn,
// recover.go the start.
//
// # Memory is a window on the disk
//
// Everything acknowledged is in the store; memory holds what is about to happen.
// Of each fairness key it holds a window (key.go), of the due-time index its head
// (due.go), of the leases all. Reads beside the loop (read.go) refill windows.
//
// # Invariants
//
// Stepper.Check looks at them after each step of the simulation:
//
//  1. Queues and keys are found under their names, queues also by number.
//  2. A key is in a class of its queue if and only if it has ready messages (in its
//     window or on disk) and is not paused, but for keys whose last read has brought
//     nothing. A class is in the heap of its queue if and only if it is open. A queue
//     knows how many of its keys are starved: theirs are all on disk.
//  3. A queue's leased messages are those of its keys.
//  4. A total counts ready, leased and delayed messages, each once.
//  5. After a turn no consumer waits for a queue that has a message in memory which
//     all of its throttles admit, unless a key before it is on its way from the disk.
//  6. The messages in windows are counted; those of an emptied queue (detachedQueue.go)
//     until they are given back.
//  7. The bytes of bodies in memory are counted, in the same way.
//  8. The heads of the due-time indexes (delays, ends of life) hold what is before
//     their edges, and list it by queue.
//  9. A window holds ready messages before the edge, in the order of places.
//  10. A body is in memory until the store has it.
//  11. A message is in one structure at a time.
//  12. A key is behind if and only if its edge says so.
//  13. A key that could have messages and shows none has asked for a read.
//  14. A key without messages is forgotten.
//  15. Each lease has one timer, and timers are in order.
//  16. A leased message belongs to a key that exists, or to one of an emptied queue:
//     those are counted.
//  17. A waiting class is in the entry of its queue at a throttle that it names, and a
//     throttle counts the keys that name it and those that wait in its line.
//  18. A throttle counts the leases that name it; those of a throttle key without a
//     setting are counted, too.
//  19. No key owes credit.
//  20. Where a throttle has room, no class waits in its line, but one of a queue that
//     has another one open. Room is kept only for a claim, and only while the queue has
//     a consumer waiting.
//  21. A recurring message waits for its next tick, has it made in the round
//     under way, or waits until its limited queue is counted; never two of these.
//  22. Counts are kept of keys that do not exist, each once, and of a bounded number.
//  23. The head of a class is due before its other keys, none of them is due before the
//     round of its class, and a class counts its keys and their weights.
//  24. A task that stands in line for messages has no answer yet.
//
// And these hold towards clients, as the simulation's oracle sees them:
//
//   - no reply before the commit of what it tells of, but for leases as told.go says
//   - no two live leases of a message; a receipt changes nothing after its lease,
//     also when a crash has lost the lease's record
//   - no id and no delivery number is given twice
//   - no message before its time, nor after its time to live
//   - in a key and priority, first deliveries are in the order of enqueue
//   - no tick of a recurring message makes two, and one that makes none is counted
package engine
