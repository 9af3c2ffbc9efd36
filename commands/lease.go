package commands

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// messageReply is the type of a leased message.
const messageReply = "array (string, string, array of string, string, integer, integer, integer, integer, string)"

// leaseMemory describes leaseRoom.
const leaseMemory = "350 bytes for each message of COUNT, of the connection's own. Messages that are in memory are kept within `server.output_bytes_max`; " +
	"others are read while the reply is written, at most `limits.reply_bytes` and one message at a time, and the rest goes back to its queue"

func lease() Spec {
	return Spec{
		Name: "FILA.LEASE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of messages returned, in slices",
		Returns: "array of " + messageReply,
		Summary: "Leases the next messages of a queue: at most COUNT (1), for VISIBILITY milliseconds or else the visibility timeout of the queue. " +
			"Without BLOCK it replies at once. BLOCK is the time in milliseconds to wait for the first message, 0 without end; server.max_block_ms bounds it. " +
			"CONSUMER is a name that FILA.GET and FILA.EXPLAIN show. With SAMEKEY all messages are of one key: the one whose turn it is, which pays for " +
			"them with its next turns. They are as many as throttles and budgets admit; in an ordered queue it is refused.",
		Reply: "An array of messages, empty when there is none. A message is an array: receipt, payload, headers (name, value, ...), key, attempt, " +
			"deliveries, enqueued_at, lease_until, queue. New fields are appended. attempt is 1 plus the failures so far; deliveries counts all deliveries.",
		Flags: []string{"write", "blocking"},
		ACL:   []string{"consume"},
		Args:  append([]Arg{{Name: "queue", Type: Key, Access: Consume}}, leaseOptions()...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.LEASE orders", "(empty array)"},
			{"FILA.ENQUEUE orders hello HEADER trace 7f3a", `"<id>"`},
			{"FILA.LEASE orders COUNT 10 BLOCK 5000 VISIBILITY 60000", `1) 1) "<receipt>"
   2) "hello"
   3) 1) "trace"
      2) "7f3a"
   4) "default"
   5) (integer) 1
   6) (integer) 1
   7) (integer) <time>
   8) (integer) <time>
   9) "orders"`},
		},
		Room: leaseRoom, Memory: leaseMemory,
		Parse: func(s *Session, in *input) (call, error) {
			c := &leaseCall{}
			c.one[0] = in.Text("queue")
			err := c.parse(s, in, c.one[:])
			return c, err
		},
	}
}

// leaseRoom is the memory of the deliveries without their messages, for which see retain.
func leaseRoom(_ *Session, in *input) int {
	return tinyRoom + int(in.Integer("count", 1))*(sizeOf[engine.Delivery]()+sizeOf[*engine.Delivery]())
}

func leaseOptions() []Arg {
	return []Arg{
		{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
		{Name: "samekey", Type: PureToken, Token: "SAMEKEY", Optional: true},
		{Name: "ms", Type: Integer, Token: "BLOCK", Optional: true, Max: millisMax},
		{Name: "ms", Type: Integer, Token: "VISIBILITY", Optional: true, Min: 1, Max: millisMax},
		{Name: "name", Type: String, Token: "CONSUMER", Optional: true},
	}
}

type leaseCall struct {
	req        engine.LeaseRequest
	session    *Session     // of the client that leases
	account    *acl.Account // whose rights apply when the messages are delivered
	deliveries []*engine.Delivery
	brief      bool      // the messages are few, small and in memory
	cleared    bool      // the rights have just been checked
	retained   int64     // bytes of the messages that the deliveries retain, out of Limits.Retained
	text       [60]byte  // of a receipt: id, colon, 20 digits
	one        [1]string // the queues if there is one; here, to save an allocation
}

func (c *leaseCall) parse(s *Session, in *input, queues []string) error {
	if n := len(in.Bytes("consumer")); n > s.handler.cfg.Limits.Consumer {
		return command.Refuse("TOOBIG", "CONSUMER of "+strconv.Itoa(n)+" bytes, the limit is "+strconv.Itoa(s.handler.cfg.Limits.Consumer))
	}
	c.account, c.session = s.login.account.Load(), s
	c.req = engine.LeaseRequest{
		Queues: queues, Count: int(in.Integer("count", 1)), SameKey: in.Has("samekey"), Block: in.Millis("block", -1),
		Visibility: in.Millis("visibility", 0), Consumer: in.Text("consumer"),
	}
	return nil
}

// Preflight implements engine.Preflighter.
func (c *leaseCall) Preflight(tx *engine.Tx) error { return tx.PreflightLease(&c.req) }

// Apply implements engine.Call.
func (c *leaseCall) Apply(tx *engine.Tx) (err error) {
	c.deliveries, err = tx.Lease(&c.req)
	c.retain()
	return err
}

// retain lets the deliveries keep messages that were in memory until they are written, within the
// budgets of the connection and of all connections. Otherwise they are read from disk again. Small
// messages are not counted, as in other replies.
func (c *leaseCall) retain() {
	size, whole := 0, true
	for _, d := range c.deliveries {
		size += d.RecordBytes()
		whole = whole && d.HasRecord()
	}
	if c.brief = whole && size <= smallRoom && len(c.deliveries) <= retainMax/2; size <= smallRoom {
		return
	}
	if !c.session.retain(int64(size)) {
		releaseRecords(c.deliveries)
		return
	}
	c.retained = int64(size)
}

// clear reports whether Render waits for nothing: what it would take back takes room in the inbox.
func (c *leaseCall) clear() bool {
	c.cleared = c.brief && c.allowed()
	return c.cleared
}

func releaseRecords(ds []*engine.Delivery) {
	for _, d := range ds {
		d.Release()
	}
}

// retain takes n bytes out of the budgets of the connection and of all connections, for what a reply
// that is not written yet keeps in memory. It never blocks.
func (s *Session) retain(n int64) bool {
	if had := s.memory.retained.Load(); had > 0 && had+n > s.handler.cfg.Limits.Retained || !s.handler.retained.Try(n) {
		return false
	}
	s.memory.retained.Add(n)
	return true
}

// unretain returns what retain has taken.
func (s *Session) unretain(n int64) {
	if n > 0 {
		s.memory.retained.Add(-n)
		s.handler.retained.Give(n)
	}
}

// release drops the messages that the deliveries retain, after they are written or dropped.
func (c *leaseCall) release() {
	if c.retained == 0 {
		return
	}
	releaseRecords(c.deliveries)
	c.session.unretain(c.retained)
	c.retained = 0
}

// Render loads the messages and writes them. The header of the array contains their number, so all
// are loaded first. A message that another call has removed meanwhile is left out; those that its own
// transaction has removed are in memory. Messages that would make the reply too large are returned to
// their queues.
//
// A message that cannot be read is left out but stays leased: the end of the lease counts as a failed
// attempt, so the message ends in the dead-letter queue instead of blocking others for ever.
func (c *leaseCall) Render(h *Handler, w *resp.Writer) error {
	defer c.release()
	if !c.cleared && !c.allowed() {
		h.submitUndo(&undeliverCall{c.deliveries})
		return command.Refuse("NOPERM", "the rights of this user were changed while it waited")
	}
	var failed error
	size := 0
	load := loadBudget{h: h}
	defer func() {
		if load.end(); load.has > smallRoom {
			releaseRecords(c.deliveries)
		}
	}()
	loaded := make([]*engine.Delivery, 0, len(c.deliveries))
	var back []*engine.Delivery
	for i, d := range c.deliveries {
		if !d.Kept && (len(back) > 0 || size > h.cfg.Limits.ReplyBytes || !d.HasRecord() && !load.begin()) {
			back = append(back, d)
			continue
		}
		read, err := h.engine.Load(c.deliveries[i:])
		load.loaded(read)
		if err != nil {
			if !errors.Is(err, engine.ErrNoMessage) {
				h.cfg.Log.Error().Err(err).Str("queue", d.Queue).Msg("a leased message cannot be read")
				failed = err
			}
			continue
		}
		loaded = append(loaded, d)
		size += len(d.Payload())
		for _, header := range d.Headers() {
			size += len(header.Name) + len(header.Value)
		}
	}
	if len(back) > 0 {
		h.submitUndo(&undeliverCall{back})
	}
	if len(loaded) == 0 && failed != nil {
		return failed
	}
	w.Array(len(loaded))
	for _, d := range loaded {
		if t := h.cfg.Tracer; t != nil {
			t.Leased(d, c.req.Consumer)
		}
		c.writeMessage(w, d)
	}
	return nil
}

// allowed checks the right to the messages again, since it may have been revoked while the lease
// waited.
func (c *leaseCall) allowed() bool {
	return !slices.ContainsFunc(c.deliveries, func(d *engine.Delivery) bool { return !c.account.May(acl.Consume, d.Queue) })
}

// Undo takes back the deliveries.
func (c *leaseCall) Undo() engine.Call {
	c.release()
	if len(c.deliveries) == 0 {
		return nil
	}
	if t := c.session.handler.cfg.Tracer; t != nil {
		t.Undelivered(c.deliveries)
	}
	return &undeliverCall{c.deliveries}
}

// undeliverCall takes back deliveries that have not reached the client.
type undeliverCall struct{ deliveries []*engine.Delivery }

// Apply implements engine.Call.
func (u *undeliverCall) Apply(tx *engine.Tx) error {
	return tx.Undeliver(u.deliveries)
}

// writeMessage writes the nine fields of a message. Clients read them by position, so a new field may
// only be appended.
func (c *leaseCall) writeMessage(w *resp.Writer, d *engine.Delivery) {
	w.Array(9)
	w.Bulk(d.Receipt.Append(c.text[:0]))
	w.Bulk(d.Payload())
	w.Array(2 * len(d.Headers()))
	for _, h := range d.Headers() {
		w.Bulk(h.Name)
		w.Bulk(h.Value)
	}
	w.BulkString(d.Key)
	w.Int(int64(d.Attempt))
	w.Int(int64(d.Deliveries))
	w.Int(d.EnqueuedAt.UnixMilli())
	w.Int(d.LeaseUntil.UnixMilli())
	w.BulkString(d.Queue)
}

// writeTime writes Unix milliseconds, or nil for no time.
func writeTime(w *resp.Writer, t time.Time) {
	if t.IsZero() {
		w.Null()
		return
	}
	w.Int(t.UnixMilli())
}

func mlease() Spec {
	return Spec{
		Name: "FILA.MLEASE", Group: "fila", Since: "0.1.0",
		Complexity: "O(N+M) where N is the number of messages returned and M the number of queues", Returns: "array of " + messageReply,
		Summary: "Leases the next messages of several queues, which take turns. With SAMEKEY all are of one key of one queue.",
		Reply:   "As FILA.LEASE.",
		Flags:   []string{"write", "blocking", "movablekeys"},
		Access:  Consume, ACL: []string{"consume"},
		Args: append([]Arg{
			{Name: "numqueues", Type: Integer, Min: 1, Max: queuesMax},
			{Name: "queue", Type: Key, Multiple: true, CountedBy: "numqueues"},
		}, leaseOptions()...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE CREATE mails", "OK"},
			{"FILA.MLEASE 2 orders mails COUNT 5", "(empty array)"},
			{"FILA.ENQUEUE mails hello", `"<id>"`},
			{"FILA.MLEASE 2 orders mails COUNT 5", "..."},
		},
		Room: leaseRoom, Memory: leaseMemory,
		Parse: func(s *Session, in *input) (call, error) {
			words := in.List("queue")
			queues := make([]string, 0, len(words))
			for _, word := range words {
				// A queue that is named twice has one turn and one place in its line.
				if name := in.Intern(word); !slices.Contains(queues, name) {
					queues = append(queues, name)
				}
			}
			c := &leaseCall{}
			err := c.parse(s, in, queues)
			return c, err
		},
	}
}

// queuesMax bounds the queues of one FILA.MLEASE: while it blocks, it has a place in the line of
// each.
const queuesMax = 1024

func waiters() Spec {
	return Spec{
		Name: "FILA.WAITERS", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT, and at most 1,024 consumers that are idle", Returns: pageOfMaps,
		Summary: "Returns the clients that wait for messages of a queue, and those that hold leases of it, a page at a time.",
		Flags:   []string{"readonly"},
		Access:  Consume,
		Reply: pageReply + "The order is that in which they came. A client is a map: " + waiterFields(&waiter{}, time.Time{}).names() + ". id, addr, name, user and idle_ms are as in CLIENT LIST, " +
			"nil for a client that has gone, id also for one that got its leases before the start of the broker. " +
			"consumer is the CONSUMER of its leases, nil without one; a client with several is listed for each. queues is how many queues it waits for, 0 if it does not wait, until when it stops waiting, nil for never. " +
			"leases is how many leases of this queue it holds, oldest_lease_ms for how long the oldest of them.",
		Args: append([]Arg{{Name: "queue", Type: Key}}, pageOptions()[1:]...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.WAITERS orders COUNT 100", "1) \"0\"\n2) (empty array)"},
		},
		Room:   waitersRoom,
		Memory: "3 KiB for each client of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			return &waitersCall{queue: in.Text("queue"), cursor: uint64(in.Integer("cursor", 0)), count: int(in.Integer("count", pageCount))}, nil
		},
	}
}

type waitersCall struct {
	queue  string
	cursor uint64
	count  int
	next   uint64
	now    time.Time
	list   []engine.Consumer
}

// waiter is a client that waits, or holds leases.
type waiter struct {
	engine.Consumer
	session *Session // nil: it has gone
}

// Apply implements engine.Call.
func (c *waitersCall) Apply(tx *engine.Tx) (err error) {
	c.now = tx.Now()
	c.next, c.list, err = tx.Consumers(c.queue, c.cursor, c.count)
	return err
}

// Render writes the cursor and the clients.
func (c *waitersCall) Render(h *Handler, w *resp.Writer) error {
	w.Array(2)
	w.BulkString(strconv.FormatUint(c.next, 10))
	writeEach(w, len(c.list), func(i int) *fields {
		return waiterFields(&waiter{c.list[i], h.session(c.list[i].Client)}, c.now)
	})
	return nil
}

func waiterFields(w *waiter, now time.Time) *fields {
	f := newFields()
	if w.Client == 0 {
		f.optional("id", "")
	} else {
		f.count("id", w.Client)
	}
	if s := w.session; s != nil {
		f.text("addr", s.conn.RemoteAddr().String())
		f.text("name", s.prefs.identity.Load().name)
		f.text("user", s.userName())
		f.age("idle_ms", now, s.conn.LastActive())
	} else {
		for _, name := range []string{"addr", "name", "user", "idle_ms"} {
			f.optional(name, "")
		}
	}
	f.optional("consumer", w.Name)
	f.at("until", w.Until)
	f.number("queues", int64(w.Queues))
	f.number("leases", w.Leases)
	f.age("oldest_lease_ms", now, w.LeasedAt)
	return f
}
