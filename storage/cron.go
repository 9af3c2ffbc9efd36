package storage

// Cron is a recurring message and its progress. Its key is ("cron", name). The message's
// contents are a Message under ("cron_message", name), which ticks do not rewrite.
type Cron struct {
	Queue      string
	Expression string
	Zone       string // name of the time zone of the expression
	CatchUp    uint32 // as the engine numbers its rules
	Key        string // fairness key; "": not given
	Priority   uint32 // one more than the priority; 0: not given
	DelayMs    uint64
	TTLMs      uint64
	NextAt     int64 // the next tick; 0: there is none
	LastAt     int64 // the last tick that made a message; 0: none has
	Fired      uint64
	Missed     uint64
	LastError  string // why the newest of the missed ticks made none
	ErrorAt    int64
	MadeUp     uint64 // late ticks made up for in a row
	SetAt      int64
	Budgets    []string // that pay for each message
	Charge     int64    // one more than the charge to each of them; 0: not given
	Topic      bool     // Queue is the name of a topic
	Unique     string   // unique id of each message; "": none
	Skipped    uint64   // ticks that made none since the message of an earlier one was not done
}

// Append appends the encoded record.
func (r *Cron) Append(dst []byte) []byte { return encode(dst, r) }

// Decode reads a record that Append made.
func (r *Cron) Decode(b []byte) error { return decode(b, r, Cron{}, "cron", nil) }

func (r *Cron) fields(c *codec) {
	c.string(1, &r.Queue)
	c.string(2, &r.Expression)
	c.string(3, &r.Zone)
	c.uint32(4, &r.CatchUp)
	c.string(5, &r.Key)
	c.uint32(6, &r.Priority)
	c.uint64(7, &r.DelayMs)
	c.uint64(8, &r.TTLMs)
	c.int64(9, &r.NextAt)
	c.int64(10, &r.LastAt)
	c.uint64(11, &r.Fired)
	c.uint64(12, &r.Missed)
	c.string(13, &r.LastError)
	c.int64(14, &r.ErrorAt)
	c.uint64(15, &r.MadeUp)
	c.int64(16, &r.SetAt)
	c.strings(17, &r.Budgets, nil)
	c.int64(18, &r.Charge)
	c.bool(19, &r.Topic)
	c.string(20, &r.Unique)
	c.uint64(21, &r.Skipped)
}
