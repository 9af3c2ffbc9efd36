package storage

import "fmt"

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
}

// Append appends the encoded record.
func (c *Cron) Append(dst []byte) []byte {
	dst = appendBytes(dst, 1, c.Queue)
	dst = appendBytes(dst, 2, c.Expression)
	dst = appendBytes(dst, 3, c.Zone)
	dst = appendUint(dst, 4, uint64(c.CatchUp))
	dst = appendBytes(dst, 5, c.Key)
	dst = appendUint(dst, 6, uint64(c.Priority))
	dst = appendUint(dst, 7, c.DelayMs)
	dst = appendUint(dst, 8, c.TTLMs)
	dst = appendInt(dst, 9, c.NextAt)
	dst = appendInt(dst, 10, c.LastAt)
	dst = appendUint(dst, 11, c.Fired)
	dst = appendUint(dst, 12, c.Missed)
	dst = appendBytes(dst, 13, c.LastError)
	dst = appendInt(dst, 14, c.ErrorAt)
	dst = appendUint(dst, 15, c.MadeUp)
	return appendInt(dst, 16, c.SetAt)
}

// Decode reads a record that Append made.
func (c *Cron) Decode(b []byte) error {
	*c = Cron{}
	if err := eachField(b, c.set); err != nil {
		*c = Cron{}
		return fmt.Errorf("cron record: %w", err)
	}
	return nil
}

func (c *Cron) set(f *field) {
	switch f.num {
	case 1:
		c.Queue = f.string()
	case 2:
		c.Expression = f.string()
	case 3:
		c.Zone = f.string()
	case 4:
		c.CatchUp = f.uint32()
	case 5:
		c.Key = f.string()
	case 6:
		c.Priority = f.uint32()
	case 7:
		c.DelayMs = f.uint64()
	case 8:
		c.TTLMs = f.uint64()
	case 9:
		c.NextAt = f.int64()
	case 10:
		c.LastAt = f.int64()
	case 11:
		c.Fired = f.uint64()
	case 12:
		c.Missed = f.uint64()
	case 13:
		c.LastError = f.string()
	case 14:
		c.ErrorAt = f.int64()
	case 15:
		c.MadeUp = f.uint64()
	case 16:
		c.SetAt = f.int64()
	}
}
