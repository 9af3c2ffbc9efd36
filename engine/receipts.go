package engine

// eachHeld ends the leases that receipts stand for, in slices if there are many, and
// returns how many there were. A receipt whose lease is over is not counted and changes
// nothing. The task is answered when all of its parts are committed; a crash before that
// may have kept some of them, as if its client had named those alone.
func (tx *Tx) eachHeld(queue string, receipts []Receipt, end func(c *core, m *message)) (int, error) {
	c := tx.core
	if len(receipts) <= receiptsFew {
		return tx.eachOfFew(queue, receipts, end)
	}
	p, err := tx.progress()
	if err != nil {
		return 0, err
	}
	q, err := c.queueToChange(queue)
	if err != nil {
		if p.at > 0 { // the queue was deleted meanwhile, and with it the other leases
			return p.n, nil
		}
		return 0, err
	}
	for ; p.at < len(receipts); p.at++ {
		if !tx.more() {
			return 0, tx.yieldAt(p)
		}
		if m := c.leaseOf(q, receipts[p.at]); m != nil {
			end(c, m)
			p.n++
			c.out.sync = true
		}
	}
	return p.n, nil
}

// receiptsFew is how many receipts are handled without asking for each of them.
const receiptsFew = 64

// eachOfFew is eachHeld for what is not worth dividing.
func (tx *Tx) eachOfFew(queue string, receipts []Receipt, end func(c *core, m *message)) (n int, err error) {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return 0, err
	}
	c.spend(len(receipts))
	for i := range receipts {
		if m := c.leaseOf(q, receipts[i]); m != nil {
			end(c, m)
			n++
		}
	}
	if n > 0 {
		c.out.sync = true
	}
	return n, nil
}
