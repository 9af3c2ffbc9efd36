package resp

// Command is one command of a client. Args has at least one element; Args[0] is the name
// as sent.
//
// The receiver owns Args and the bytes, but the commands of one Session.Handle call share
// their memory: copy a small argument that is kept for long.
type Command struct {
	Args [][]byte
}

// Handler creates a Session for each connection.
type Handler interface {
	// Open is called on the connection's reader goroutine before the first
	// read. A session of a server without passwords calls
	// Conn.SetAuthenticated here.
	Open(c *Conn) Session
}

// Session handles the commands of a connection. Its methods are called on the
// connection's reader goroutine only.
type Session interface {
	// Handle gets all commands of one socket read in order (at most the room left in the
	// reply queue, and one at a time until Conn.SetAuthenticated). It pushes one Reply
	// per command, or none if the client asked for none, preferably all in one Conn.Push
	// before it submits the work. It may block; the connection is not read meanwhile.
	// cmds is reused after the call, its elements' memory is not; the session may clear
	// them.
	Handle(cmds []Command)

	// Gone is called once, when no more commands will be read: the connection ended,
	// failed or was killed, or the server stops. Replies may still be pending; each of
	// them must become ready, because only then it is sent or dropped and the
	// connection's memory released.
	Gone()
}

// Reply is the answer to one command; it may be empty. Ready may be called from the
// reader and the writer goroutine, Append and Drop from the writer goroutine only, but see Brief.
type Reply interface {
	// Ready reports whether the answer is known. Once true it stays true. The component
	// that makes it true calls Conn.Wake afterwards.
	Ready() bool

	// Append renders the answer. It is called at most once, in order, after Ready.
	Append(w *Writer)

	// Drop reports that the client did not get the answer: the connection ended before
	// Append, or writing the rendered bytes failed. It is called at most once, after
	// Ready. Without a Drop, only acceptance by the operating system is certain, see
	// Recallable.
	Drop()
}

// Brief is a Reply that Conn.Answer may render, on the goroutine of its caller. Brief is called
// after Ready. True promises that Append renders at most some KiB, and neither reads from disk
// nor waits for anything that the caller of Conn.Answer does.
type Brief interface {
	Reply
	Brief() bool
}

// Perishable is a Reply that is of use only to a client that is present, such as leased
// messages. A client that has closed its sending side may be gone or merely have no more
// requests: it still gets other replies, but perishable ones are dropped.
type Perishable interface {
	Reply
	Perishable() bool
}

// Recallable is a Perishable that may be dropped although it was written: if the system of the
// client had not acknowledged all of it after unackedMin, when the connection ended. It has then
// not reached a client whose machine or network has failed. Only Linux tells, and only the last
// recallMax of such replies of a connection are remembered; with TLS, the last one.
type Recallable interface {
	Perishable
	// Retain is called when the reply was written. It drops what Drop does not need, and reports
	// whether the rest is small enough to be kept for as long as the connection lasts.
	Retain() bool
}

// Bytes returns a finished reply: b in wire format, which must not be modified
// afterwards. Replies may share b.
func Bytes(b []byte) Reply { return bytesReply(b) }

type bytesReply []byte

func (bytesReply) Ready() bool        { return true }
func (b bytesReply) Append(w *Writer) { w.Raw(b) }
func (bytesReply) Drop()              {}
func (b bytesReply) Brief() bool      { return len(b) <= briefBytes }

// Reserved returns a reply that holds the memory of a Conn.Reserve.
func Reserved(r Reply, room Reservation) Reply { return &reservedReply{r, room} }

type reservedReply struct {
	Reply
	room Reservation
}

// Unwrap returns the wrapped reply.
func (r *reservedReply) Unwrap() Reply { return r.Reply }

// Brief reports whether the wrapped reply is brief.
func (r *reservedReply) Brief() bool {
	b, ok := r.Reply.(Brief)
	return ok && b.Brief()
}

// Perishable reports whether the wrapped reply is perishable.
func (r *reservedReply) Perishable() bool {
	p, ok := r.Reply.(Perishable)
	return ok && p.Perishable()
}

// Retain asks the wrapped reply.
func (r *reservedReply) Retain() bool {
	p, ok := r.Reply.(Recallable)
	return ok && p.Retain()
}

// closeReply marks the position in the reply queue at which the connection ends.
type closeReply struct{}

func (closeReply) Ready() bool    { return true }
func (closeReply) Append(*Writer) {}
func (closeReply) Drop()          {}
