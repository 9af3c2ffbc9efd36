// Package search selects messages: those of a queue by what their records say, and those that are done by the records of
// their ends. It reads records and knows no queues, leases or tasks; what has changed since a record was read is the
// engine's.
//
// A page ends after a number of messages, before its messages take too much memory, and before the work of its filter
// takes too long; the next one continues where it has ended, at its cursor:
//
//	filter.go  Filter: what a message must have; how much work it is to find out
//	cursor.go  where a page begins, as a text
//	done.go    End: the record of the end of a message; Done: a page of these
package search
