package commands

import (
	"math"
	"reflect"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/telemetry"
	"github.com/faisca/fila/resp"
)

// This file says what memory a command takes from its execution until its reply is
// written. A connection sets that aside before the command is executed (resp's Reserve),
// so that a client which sends commands and reads no reply has as many of them executed
// as there is room for.
//
// Most commands take little: smallRoom bounds them, and the reply queue bounds their number.
// The others say so in their Spec (Room), as a bound that follows from the arguments
// and from what is configured. Words that a client sends are counted for every command.

const (
	// smallRoom is what a command takes that says nothing, beside its arguments.
	smallRoom = 4 << 10
	// tinyRoom is what a command takes whose result is a number, an id or less.
	tinyRoom = 512
	// aloneRoom, as what a command takes, stands for a result whose size only its
	// execution shows: it is executed when no reply is before it.
	aloneRoom = -1
	// perWord is what an argument takes beside its bytes: as a slice, and as what is
	// made of it.
	perWord = 64
	// argumentCopies are the arguments as they came, and what is made of them: the
	// record of a message, receipts, names.
	argumentCopies = 2
)

// needs returns what the current command needs; a need of no bytes is none.
func (s *Session) needs(c *entry) resp.Need {
	var need resp.Need
	if size := argumentBytes(s.in.Args); size > smallRoom {
		s.large = true
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
		need.Own = c.Blocking
	}
	return need
}

// argumentBytes returns what arguments take.
func argumentBytes(args [][]byte) int {
	n := 0
	for _, a := range args {
		n += len(a) + perWord
	}
	return n
}

// makeRoom sets aside what the current command needs, and waits for it if it has to:
// then what was executed before is flushed first, as its replies make the room. False:
// the connection is ending.
func (s *Session) makeRoom(c *entry) bool {
	need := s.needs(c)
	if need.Bytes == 0 {
		return true
	}
	if s.waiting != nil && s.waiting.task.Done() {
		s.waiting = nil
	}
	if s.waiting != nil && !need.Own {
		need.Alone = true // behind a lease that waits for messages it could be kept for ever
	}
	room, ok := s.conn.Reserve(need, false)
	if !ok {
		s.flush()
		room, ok = s.conn.Reserve(need, true)
		s.clock = s.handler.engine.Elapsed() // it was the client that took so long
	}
	s.reserved, s.holds = room, ok
	return ok
}

// answer puts a reply behind those that were not flushed yet. What is set aside for
// it and it does not need, as it has bytes already, goes back.
func (s *Session) answer(r resp.Reply, bytes int64) {
	if s.holds {
		s.holds = false
		r = resp.Reserved(r, s.conn.Shrink(s.reserved, bytes))
	}
	s.replies = append(s.replies, r)
}

// sizeOf is what a value of a type takes, without what it points at.
func sizeOf[T any]() int { return int(reflect.TypeFor[T]().Size()) }

// pageOf is the room of a command that returns COUNT values of a type, with texts of
// at most names names, and more bytes for each value.
func pageOf[T any](names, more int) func(s *Session, in *input) int {
	each := sizeOf[T]() + more
	return func(s *Session, in *input) int {
		return int(in.Integer("count", pageCount)) * (each + names*s.handler.cfg.Limits.Name)
	}
}

// always is the room of a command that takes the same whatever its arguments are.
func always(n int) func(*Session, *input) int { return func(*Session, *input) int { return n } }

// message is the room of a command that returns one message.
func message(s *Session, in *input) int { return s.handler.cfg.Limits.Message + smallRoom }

// pins reports whether commands of one read share memory of which a command that is
// kept until it is answered would keep more than is small for each: a short one beside
// one of many kilobytes.
func pins(cmds []resp.Command) bool {
	const few = 16 // what one read brings is no more than this many times smallRoom, or one command
	if len(cmds) > few {
		return false
	}
	n := 0
	for i := range cmds {
		n += argumentBytes(cmds[i].Args)
	}
	return n > len(cmds)*smallRoom
}

// words is the room of a command that keeps each bytes for each word of an argument.
func words(slot string, each int) func(*Session, *input) int {
	return func(_ *Session, in *input) int { return tinyRoom + len(in.List(slot))*each }
}

// sized is the room of a command whose text takes so many times what an argument has.
func sized(slot string, times int) func(*Session, *input) int {
	return func(_ *Session, in *input) int { return smallRoom + times*len(in.Bytes(slot)) }
}

// tableRoom is that of a command that shows what the table has of the commands named in
// a slot, or of all: bytes says how much that is of one, with its subcommands.
func tableRoom(slot string, bytes func(*entry) int) func(*Session, *input) int {
	return func(s *Session, in *input) int {
		r := s.handler.table
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

// linesRoom is that of CLIENT LIST.
func linesRoom(s *Session, in *input) int {
	h := s.handler
	h.mu.Lock()
	defer h.mu.Unlock()
	n := tinyRoom
	for _, s := range h.sessions {
		n += s.lineBytes()
	}
	return 2 * n // the text is put together before it is written
}

// lineBytes is what describe writes at most, where a client has said so much of itself.
func (s *Session) lineBytes() int {
	const figures = 512 // those without a name of the client's choice
	id := s.identity.Load()
	return figures + len(id.name) + len(id.libName) + len(id.libVersion) + len(s.userName())
}

// usersRoom is that of what shows users.
func usersRoom(s *Session, in *input) int {
	n := tinyRoom
	for _, u := range s.handler.users.List() {
		n += 2*len(u.String()) + perWord
	}
	return n
}

// deniedRoom is that of ACL LOG.
func deniedRoom(s *Session, in *input) int {
	n := smallRoom
	for _, e := range s.handler.denied.Newest(math.MaxInt) {
		n += len(e.Object) + len(e.User) + len(e.Client) + tinyRoom
	}
	return n
}

// settingsRoom is that of CONFIG GET: each setting is shown once, whatever matches it.
func settingsRoom(s *Session, in *input) int {
	n := tinyRoom
	for name, value := range s.handler.settings() {
		n += len(name) + len(value) + perWord
	}
	return n
}

// slowRoom is that of SLOWLOG GET.
func slowRoom(s *Session, in *input) int {
	const each = slowArgsMax*(slowBytesMax+perWord) + nameBytesMax + tinyRoom
	entries := int64(s.handler.slow.Len())
	if n := in.Integer("count", slowDefault); n >= 0 {
		entries = min(entries, n)
	}
	return tinyRoom + int(entries)*each
}

// channelsRoom is that of PUBSUB CHANNELS.
func channelsRoom(s *Session, in *input) int {
	n := tinyRoom
	for _, c := range s.handler.hub.Channels() {
		n += len(c) + perWord
	}
	return n
}

// confirmRoom is that of the four commands that change subscriptions: ending without a
// name ends all.
func confirmRoom(slot string) func(*Session, *input) int {
	each := sizeOf[subscriptionChange]() + sizeOf[string]() + perWord
	return func(s *Session, in *input) int {
		n := len(in.List(slot))
		if n == 0 {
			n = len(s.subs.topics)
		}
		return tinyRoom + n*each
	}
}

// hooksRoom is that of a list of the hooks of all queues.
func hooksRoom(s *Session, in *input) int {
	if in.Has("queue") {
		return smallRoom
	}
	return tinyRoom + s.handler.engine.Snapshot().Hooks()*sizeOf[engine.ScriptInfo]()*2
}

// browseRoom is that of a page, which ends early where it would be larger.
func browseRoom(s *Session, in *input) int {
	most := engine.PageBytes(s.handler.cfg.Limits.Message)
	if count := int(in.Integer("count", pageCount)); count < most/(s.handler.cfg.Limits.Message+smallRoom) {
		return count * (s.handler.cfg.Limits.Message + smallRoom)
	}
	return most
}

// configRoom is that of a page of the runtime configuration, which ends early, too.
func configRoom(_ *Session, in *input) int {
	return smallRoom + min(int(in.Integer("count", pageCount))*(configValueRoom+2*sizeOf[string]()), configPageBytes+configValueRoom)
}

const (
	configPageBytes = 4 << 20
	configValueRoom = 10 << 10 // a key and a value of the runtime configuration
)

const (
	// cancelRoom is what FILA.CANCEL takes for an id: to look the message up, and what
	// is found of it but for its record.
	cancelRoom = 512
	// scriptCopies is how many times its source a compiled script takes.
	scriptCopies = 32
)

// nameBytes is what COMMAND LIST and ACL CAT show of a command, with its subcommands.
func nameBytes(c *entry) int {
	n := len(c.Name) + perWord
	for _, sub := range c.Subs {
		n += len(sub.Name) + perWord
	}
	return n
}

// histogramBytes is what LATENCY HISTOGRAM shows of a command, with its subcommands.
func histogramBytes(c *entry) int {
	const steps, each = telemetry.StepsMax, 48
	return (1 + len(c.Subs)) * (command.NameMax*2 + perWord + steps*each)
}
