// Package search reads and selects messages: those of a queue by what their records say, and those that are done by the
// records of their ends. It reads records and knows no queues, leases or tasks; what has changed since a record was read is the
// engine's.
//
// A page ends after a number of messages, before its messages take too much memory, and before the work of its filter
// takes too long; the next one continues where it has ended, at its cursor:
//
//	record.go  Record: what the store has of a message; reads of one, of a range, of a fairness key
//	filter.go  Filter: what a message must have; how much work it is to find out
//	page.go    Page: a range of the messages of a queue
//	cursor.go  where a page begins, as a text
//	view.go    View: a message as it is shown
//	holders.go Holders: the leases that keep throttles full, for an explanation
//	done.go    End: the record of the end of a message; Done: a page of these
package search
