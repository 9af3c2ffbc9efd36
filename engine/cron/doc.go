// Package cron has the recurring messages: schedules with the message that each tick enqueues, which of them is due
// next, what becomes of ticks that were missed, and what has become of the others. internal/schedule reads
// expressions. The package knows no queues, enqueues or clock, and does not keep the contents of messages, which are read
// from the store for each tick.
//
// The engine gives the time of its calendar, and puts the record of an entry ([Entry.Put]) into the batch after each
// change. One tick goes like this:
//
//	at Next          Round(now): for each entry that is due, the first one first,
//	                   Skip(e, now): moves e past the missed ticks that its rule gives up, or 0
//	                   k = Take(e): the tick, for which a message is made off the loop
//	off the loop     k.Content(store): the content of the message
//	with the result  Holds(k): whether the tick still counts
//	                 End(k, Fired, "", now), in the batch of the message; the next tick is set
//	                 Release(k): e is armed again, for the same tick if there was no End
//
// # States of an entry
//
//	armed      in the heap until its next tick
//	taken      its tick is being made: it has left the heap
//	uncounted  its tick waits until the engine knows how many messages its queue has
//	paused     it has a next tick, for which nothing waits; what falls into the pause is given up
//	disabled   it has no schedule: the stored expression or zone is not valid; Set repairs it
//
//	armed ──Take──▶ taken ──Release──▶ armed
//	taken ──Defer──▶ uncounted ──Counted──▶ armed
//	any ──Set──▶ armed, or paused as before; a tick that was taken no longer counts
//	any ──Pause──▶ paused ──Pause(false)──▶ armed; a tick that was taken no longer counts
//	any ──Delete──▶ gone
//
// The time of the next tick alone says which ticks are still to come, and it never goes back. So no tick enqueues two
// messages, whatever the clock does.
//
// # Glossary
//
//	recurring message     a cron expression that enqueues one message per tick
//	tick                  a time at which a recurring message is due
package cron
