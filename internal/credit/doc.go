// Package credit has the arithmetic of budgets: the sums of an account, what a charge may take,
// and what refills bring. It keeps no time, stores nothing and cannot fail in part: a method
// that returns an error has changed nothing.
//
// An account has three sums. Credited is all that ever came in, Spent all that ever went out,
// Reserved what live leases hold. Its balance is Credited - Spent, and Balance - Reserved is
// available. So at any time
//
//	Credited = Spent + Reserved + Available
//
// Amounts are whole units of whatever the owner of the account sells. An amount, a balance and
// the negative of one are at most Max, which every client and Lua count exactly. The only
// exception is a settlement, which is never refused: it may take the balance below -Max.
package credit
