package storage

// Cron is a recurring message and its progress. Its key is ("cron", name). The message's
// contents are a Message under ("cron_message", name), which ticks do not rewrite.
type Cron struct {
	Meta       // of each message, without what Meta.CutContent returns and the charge
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
	Charge     int64  // one more than the charge to each of the budgets; 0: not given
	Topic      bool   // Queue is the name of a topic
	Skipped    uint64 // ticks that made none since the message of an earlier one was not done
	PausedAt   int64  // since when it is paused; 0: it is not
	Replace    uint64 // one more than the longest delay of a replacement in milliseconds, 1: none; 0: ticks replace nothing
}

// Append appends the encoded record.
func (r *Cron) Append(dst []byte) []byte { return encode(dst, r) }

// Decode reads a record that Append made.
func (r *Cron) Decode(b []byte) error { return decode(b, r, Cron{}, "cron", nil) }
