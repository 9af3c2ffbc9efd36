// Package outbox moves messages from a table of PostgreSQL to queues of Fila: a transactional outbox.
//
// A program inserts a row into fila_outbox, by the function fila_enqueue, in its own transaction. A [Relay] enqueues the
// rows of transactions that were committed, and deletes them. [SQL] has the table and the function.
//
// # A batch
//
// Rows belong to one of 64 partitions, by a hash of queue and fairness key. A worker of a relay works in one transaction
// of the database:
//
//  1. It locks up to 8 partitions that have rows, those with the oldest first, and passes over those that another worker
//     has locked (FOR UPDATE SKIP LOCKED).
//  2. It reads their first rows, in a statement of its own: its snapshot is younger than the locks, so it sees what the
//     last holder of a partition has left. Rows that another transaction has locked are passed over.
//  3. It enqueues them in the order of seq, each with its id as DEDUP, some hundreds in a transaction of the broker.
//  4. It deletes the rows that the broker has taken, marks those that it refuses for good, and commits.
//
// If anything dies between 3 and 4 the rows are still there. They are enqueued again and the broker, which remembers the
// ids for the DEDUPWINDOW of the queue, drops them.
//
// # Order
//
// Two rows of one queue and key are enqueued in the order of their inserts if the second was inserted after the
// transaction of the first was committed, or by the same transaction: then seq says so, and each snapshot that has the
// second has the first. Transactions that overlap have no order. A partition is the work of one worker at a time, and a
// row that is refused for a time keeps back the later rows of its key (see [verdict]): so several relays keep the order.
package outbox
