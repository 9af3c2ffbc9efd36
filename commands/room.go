package commands

import (
	"math"
	"reflect"
	"sync/atomic"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/resp"
)

// This file bounds the memory that a command takes from its execution until its reply is written.
// The connection reserves it before the command is executed (resp.Conn.Reserve), so a client that
// pipelines commands without reading replies has only as many executed as fit.
//
// Most commands take little: smallRoom bounds each, and the reply queue bounds their number. The
// others state a bound in their Spec (Room), which follows from the arguments and the
// configuration. The bytes of arguments count for every command.

const (
	// smallRoom is the memory of a command without Room, in addition to its arguments.
	smallRoom = 4 << 10
	// tinyRoom is the memory of a command whose result is at most a number or an id.
	tinyRoom = 512
	// aloneRoom stands for a result whose size is known only after the execution: the command
	// is executed when no reply precedes it in the reply queue.
	aloneRoom = -1
	// perWord is the memory of an argument in addition to its bytes: its slice header, and the
	// parsed value.
	perWord = 64
	// argumentCopies counts the arguments as received, and what is parsed from them: the record
	// of a message, receipts, names.
	argumentCopies = 2
)

// sessionMemory is what the current command, and replies that wait, hold of memory.
type sessionMemory struct {
	reserved     resp.Reservation // for the current command, if holds is set
	holds        bool
	retained     atomic.Int64 // bytes of messages that leases retain until their reply is written
	sharesBuffer bool         // arguments of this read must be copied to be retained
	large        bool         // the arguments of the current command are too large to retain
	waiting      resp.Reply   // of the newest lease that may be waiting for messages, or nil
}

// needs returns the reservation of the current command; zero bytes mean none.
func (s *Session) needs(c *entry) resp.Need {
	var need resp.Need
	if size := argumentBytes(s.in.Args); size > smallRoom {
		s.memory.large = true
		need.Bytes = argumentCopies * int64(size)
	}
	if c.Spec.Room == nil {
		return need
	}
	n := c.Spec.Room(s, &s.in)
	if n == aloneRoom {
		need.Alone, n = true, smallRoom+1
	}
	if n > smallRoom {
		need.Bytes += int64(n)
		need.Own = c.Blocking && (c.Name != "fila.result" || s.waitsForResult(&s.in)) // the others keep their room for moments
	}
	return need
}

// argumentBytes returns the memory of arguments.
func argumentBytes(args [][]byte) int {
	n := 0
	for _, a := range args {
		n += len(a) + perWord
	}
	return n
}

// makeRoom reserves the memory of the current command, and waits if there is not enough. It
// flushes the commands before it first, since their replies return memory. It returns false if
// the connection is ending.
func (s *Session) makeRoom(c *entry) bool {
	need := s.needs(c)
	if need.Bytes == 0 {
		return true
	}
	if s.memory.waiting != nil && s.memory.waiting.Ready() {
		s.memory.waiting = nil
	}
	if s.memory.waiting != nil && !need.Own {
		need.Alone = true // behind a waiting lease, the memory could be held without end
	}
	room, ok := s.conn.Reserve(need, false)
	if !ok {
		s.flush()
		room, ok = s.conn.Reserve(need, true)
		s.clock = s.handler.engine.Elapsed() // the wait for the client does not count as latency
	}
	s.memory.reserved, s.memory.holds = room, ok
	return ok
}

// answer appends a reply to those of this read. A rendered reply returns the part of its
// reservation that it does not need.
func (s *Session) answer(r resp.Reply, bytes int64) {
	if s.memory.holds {
		s.memory.holds = false
		r = resp.Reserved(r, s.conn.Shrink(s.memory.reserved, bytes))
	}
	s.out.replies = append(s.out.replies, r)
}

// sizeOf returns the size of a value of a type, without what it points to.
func sizeOf[T any]() int { return int(reflect.TypeFor[T]().Size()) }

// pageOf is the room of a command that returns COUNT values of a type, each with at most names
// names and more bytes of text.
func pageOf[T any](names, more int) func(s *Session, in *input) int {
	each := sizeOf[T]() + more
	return func(s *Session, in *input) int {
		return int(in.Integer("count", pageCount)) * (each + names*s.handler.cfg.Limits.Name)
	}
}

// always is the room of a command that does not depend on its arguments.
func always(n int) func(*Session, *input) int { return func(*Session, *input) int { return n } }

// message is the room of a command that returns one message.
func message(s *Session, _ *input) int { return s.handler.cfg.Limits.Message + smallRoom }

// messageOrEnd is the room of a message in any status: one that is done has the result of its ack.
func messageOrEnd(s *Session, in *input) int { return max(message(s, in), endRoom(s)) }

// endRoom is the room of a message that is done.
func endRoom(s *Session) int { return s.handler.cfg.Limits.Result + 2*smallRoom }

// shareLargeBuffer reports whether the commands of one read share a buffer that is large compared to some of
// them. A short command that is retained until its reply would keep all of the buffer alive.
func shareLargeBuffer(cmds []resp.Command) bool {
	const few = 16 // a read of at most this many times smallRoom, or of one command, does not count as large
	if len(cmds) > few {
		return false
	}
	n := 0
	for i := range cmds {
		n += argumentBytes(cmds[i].Args)
	}
	return n > len(cmds)*smallRoom
}

// words is the room of a command that takes each bytes for each value of an argument.
func words(slot string, each int) func(*Session, *input) int {
	return func(_ *Session, in *input) int { return tinyRoom + len(in.List(slot))*each }
}

// sized is the room of a command that takes a multiple of the size of an argument.
func sized(slot string, times int) func(*Session, *input) int {
	return func(_ *Session, in *input) int { return smallRoom + times*len(in.Bytes(slot)) }
}

// tableRoom is the room of a command that describes the commands named in a slot, or all: bytes
// returns the size for one command with its subcommands.
func tableRoom(slot string, bytes func(*entry) int) func(*Session, *input) int {
	return func(s *Session, in *input) int {
		r := s.table()
		n := tinyRoom
		if slot != "" && in.Has(slot) {
			for _, name := range in.List(slot) {
				if c := r.Resolve(name); c != nil {
					n += bytes(c)
				} else {
					n += perWord
				}
			}
			return n
		}
		for _, c := range r.Commands {
			n += bytes(c)
		}
		return n
	}
}

// linesRoom is the room of CLIENT LIST.
func linesRoom(s *Session, in *input) int {
	h := s.handler
	h.mu.Lock()
	defer h.mu.Unlock()
	n := tinyRoom
	for _, s := range h.sessions {
		n += s.lineBytes()
	}
	return 2 * n // the text is built before it is written
}

// lineBytes bounds a line of describe for a client with names and other texts of these lengths.
func (s *Session) lineBytes() int {
	const figures = 512 // the fields that the client does not choose
	id := s.prefs.identity.Load()
	return figures + len(id.name) + len(id.libName) + len(id.libVersion) + len(s.userName())
}

// usersRoom is the room of a command that shows users.
func usersRoom(s *Session, in *input) int {
	n := tinyRoom
	for _, u := range s.handler.users.List() {
		n += 2*len(u.String()) + perWord
	}
	return n
}

// deniedRoom is the room of ACL LOG.
func deniedRoom(s *Session, in *input) int {
	n := smallRoom
	for _, e := range s.handler.denied.Newest(math.MaxInt) {
		n += len(e.Object) + len(e.User) + len(e.Client) + tinyRoom
	}
	return n
}

// settingsRoom is the room of CONFIG GET: each setting is shown at most once.
func settingsRoom(s *Session, in *input) int {
	n := tinyRoom
	for name, value := range s.handler.settings() {
		n += len(name) + len(value) + perWord
	}
	return n
}

// slowRoom is the room of SLOWLOG GET.
func slowRoom(s *Session, in *input) int {
	const each = slowArgsMax*(slowBytesMax+perWord) + nameBytesMax + tinyRoom
	entries := int64(s.handler.slow.Len())
	if n := in.Integer("count", slowDefault); n >= 0 {
		entries = min(entries, n)
	}
	return tinyRoom + int(entries)*each
}

// channelsRoom is the room of PUBSUB CHANNELS.
func channelsRoom(s *Session, in *input) int {
	n := tinyRoom
	for _, c := range s.handler.hub.Channels() {
		n += len(c) + perWord
	}
	return n
}

// confirmRoom is the room of the four commands that change subscriptions. Without names, they
// end all subscriptions.
func confirmRoom(slot string) func(*Session, *input) int {
	each := sizeOf[subscriptionChange]() + sizeOf[string]() + perWord
	return func(s *Session, in *input) int {
		n := len(in.List(slot))
		if n == 0 {
			n = len(s.subs.now.topics)
		}
		return tinyRoom + n*each
	}
}

// hooksRoom is the room of a list of the hooks of all queues.
func hooksRoom(s *Session, in *input) int {
	if in.Has("queue") {
		return smallRoom
	}
	return tinyRoom + s.handler.engine.Snapshot().Hooks()*sizeOf[engine.ScriptInfo]()*2
}

// metricsRoom is that of FILA.METRICS: the text, and what it is made of. How much that is shows
// the last answer; a first one is within the constant for some hundred queues.
func metricsRoom(s *Session, _ *input) int {
	const first = 2 << 20
	return first + 2*s.handler.cfg.Metrics.Bytes()
}

// historyCopies is how much FILA.HISTORY takes of a moment beside its value: as it is written.
const historyCopies = 2

// waitersRoom is the room of FILA.WAITERS.
func waitersRoom(s *Session, in *input) int {
	return tinyRoom + int(in.Integer("count", pageCount))*(sizeOf[waiter]()+tinyRoom+2*nameBytesMax+s.handler.cfg.Limits.Consumer)
}

// browseRoom is the room of a page of FILA.BROWSE, which ends early if it would be larger.
// Groups of errors take less than the largest page, whatever COUNT is.
func browseRoom(s *Session, in *input) int {
	one := message(s, in)
	if in.Has("done") {
		one = endRoom(s)
	}
	most := engine.PageBytes(one - smallRoom)
	if in.Has("group.error") {
		return most
	}
	if count := int(in.Integer("count", pageCount)); count < most/one {
		return count * one
	}
	return most
}

// configRoom is the room of a page of the runtime configuration, which ends early as well.
func configRoom(_ *Session, in *input) int {
	return smallRoom + min(int(in.Integer("count", pageCount))*(configValueRoom+2*sizeOf[string]()), configPageBytes+configValueRoom)
}

const (
	configPageBytes = 4 << 20
	configValueRoom = 10 << 10 // a key and a value of the runtime configuration
)

const (
	// cancelRoom is the memory that FILA.CANCEL takes for each id: for the lookup, and for the
	// result without the record.
	cancelRoom = 512
	// scriptCopies is the size of a compiled script as a multiple of its source.
	scriptCopies = 32
)

// nameBytes returns what COMMAND LIST and ACL CAT show for a command with its subcommands.
func nameBytes(c *entry) int {
	n := len(c.Name) + perWord
	for _, sub := range c.Subs {
		n += len(sub.Name) + perWord
	}
	return n
}

// histogramBytes returns what LATENCY HISTOGRAM shows for a command with its subcommands.
func histogramBytes(c *entry) int {
	const steps, each = telemetry.StepsMax, 48
	return (1 + len(c.Subs)) * (command.NameMax*2 + perWord + steps*each)
}
