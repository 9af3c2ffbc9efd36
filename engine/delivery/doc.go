// Package delivery is what a client gets of a leased message: the delivery with its record, the receipt that proves the
// lease, and the notes that are kept of a lease while it lasts. It does not know which message is leased to whom, nor
// until when.
//
// A Delivery belongs to the goroutine of the connection once the turn that made it is over, and so does what Load reads.
// Load gives the headers of the message to the notes of its lease, which the loop reads when the lease ends. All else
// belongs to the loop.
package delivery
