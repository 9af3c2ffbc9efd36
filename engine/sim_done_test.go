//go:build !race

package engine

// Progress in the simulation.

// progress returns what a client says about a delivery with an extension. It begins with the receipt.
func (s *sim) progress(d *Delivery) (o ExtendOptions) {
	if s.rng.IntN(3) > 0 {
		o.Progress = new(d.Receipt.String())
	}
	return o
}

// said records that an extension was answered.
func (o *oracle) said(d *Delivery, with ExtendOptions) {
	if m := o.current(d); m != nil && with.Progress != nil {
		m.progress = *with.Progress
	}
}

// shownProgress checks the progress of a message that is shown. held says that a client is known to hold its lease.
func (o *oracle) shownProgress(v *View, held bool) {
	m := o.byID[v.ID]
	if v.Progress == "" {
		if held && m.progress != "" {
			o.fail("%s was shown without its progress, %q", m.tag, m.progress)
		}
		return
	}
	r, err := ParseReceipt([]byte(v.Progress))
	if err != nil || r.ID != v.ID || v.Status != StatusLeased || held && r != m.receipt {
		o.fail("%s is %s, and was shown with the progress %q", m.tag, v.Status, v.Progress)
	}
}
