// Package budget has the accounts of prepaid credits that pay for messages: their sums, reservations, refills and
// movements, and the ids under which a movement happens once. internal/credit has the arithmetic of one account,
// internal/ledger reads what has moved it. The package knows no queues, messages, clients, batches of writes, events
// or clock, and not which keys wait for credits.
//
// # Values in, values out
//
// The engine says what happens to an account, and at which [Moment]. A call changes the sums in memory and returns a
// [Change]: the entries of the ledger that go into the open batch, and what else follows from it. The record of an
// account follows once for each batch, however often the account has moved ([Accounts.Records]). An account that does
// not exist, an amount that is not covered and an id that was used for something else are errors, of which
// [Move.Refusal] makes the texts that clients read. Four calls go like this:
//
//	CREDIT acme 1000 ID i   on the connection: View.Look(acme, i) = Known, what the store has under the id
//	                        Move(acme, 1000, i, Known) = 1000, Change{the entry, the id; Stored, Freed}
//	                        the engine puts both into the batch, and has keys looked at that wait for acme
//	                        at the cut: Records has the record of acme
//	a lease that reserves   CoverAt(now) = 1000, with the ticks that are due: the message goes out
//	                        CatchUp = Change{the entry of these ticks, if there are any}
//	                        Reserve(800): nothing is written, a reservation is what the lease says
//	an ack that settles     Settle(acme, 800, 150) = Change{Stored, Freed, Drained}: 650 are available again; the
//	                        settlements of a minute share an entry, which is written when the next one begins
//	a refill                at the timer, NextAt, if keys wait for acme: CatchUp = Change{the entry; Stored,
//	                        Refilled, Freed}; without such keys, when a call looks at acme
//
// # State of an account
//
//	existence    none ──Set──▶ listed ──Delete, when nothing is reserved──▶ gone; Set makes another one of the name
//	record       written ──a change that is Stored──▶ changed ──Records──▶ written
//	reservation  none ──Reserve──▶ open ──Settle, Return──▶ none; a lease has one of each of its accounts
//	settlements  none ──Settle──▶ running ──another minute, or another movement──▶ in the ledger
//	refill       next tick is set ──CatchUp at or after it──▶ the next one after now; no tick counts twice
//	dry          no ──RunDry──▶ yes ──credits come in──▶ no
//
// The sums credited and spent, the next tick and the running settlements are in the record. What is reserved is not
// stored: it is the sum over the leases, also after a recovery (Reserve).
//
// # Ids
//
// A movement with an id is done once. The ids are in the ledger, on disk only, and the loop reads nothing: a
// connection looks the id up before ([View.Look]), and the ids of recent batches, which it may have missed, are in
// memory. Where both may have missed it, Move returns [recent.ErrStale], and the look-up is repeated.
//
// # Invariants
//
// Check verifies those of the package comment of the engine that are about accounts alone, under their numbers:
//
//  28. Accounts are found under their names. Those that have changed since the last cut are listed, and no other. An
//     account has a calendar if and only if it has a refill. The days of the ledger contain its newest entry.
//  29. An account has reserved what the engine says that its leases have, each of them once.
//
// Besides, for each account: credited less spent is the balance, which is the sum of its entries and of the running
// settlements; available is the balance less what is reserved; a movement whose id is known changes nothing. The
// random programs of the tests check these after each step.
//
// # Files
//
//	account.go   Account: its state, and what is read of it
//	accounts.go  Accounts: the table; settings, refills, records, checks
//	moves.go     what moves an account, and the entries of it
//	ids.go       ids of movements; what other goroutines see; pages of the ledger
//	inside.go    what tests may break
//
// # Glossary
//
//	account               a budget in memory: the credits that a client has paid in advance
//	charge                what a message costs each of its budgets
//	covered               at most what is available, with the debt that is allowed
//	settle                spend what a message has used, when its lease ends
//	balance               what has come in less what has gone out
//	available             what a charge may take, without the debt that is allowed
//	movement              what changes the balance: a credit, a charge or a refill
//	refill                what an account gets at each tick of an expression
//	ledger                the entries of all movements
package budget
