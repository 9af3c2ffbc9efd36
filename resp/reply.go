package resp

// Command is one command as a client sent it. Args has at least one element;
// Args[0] is the name in the client's spelling.
//
// Args and the bytes belong to the receiver, but the commands of one
// Session.Handle call share their memory: who keeps a small argument for long
// should copy it.
type Command struct {
	Args [][]byte
}

// Handler makes a Session for each connection.
type Handler interface {
	// Open is called on the connection's reader goroutine before the first
	// read. A session of a server without passwords calls
	// Conn.SetAuthenticated here.
	Open(c *Conn) Session
}

// Session is what a connection's commands mean. Its methods are called on the
// connection's reader goroutine only.
type Session interface {
	// Handle takes all commands of one socket read, in order (at most the room
	// left in the window, and one at a time until Conn.SetAuthenticated). It
	// pushes one Reply per command, or none where the client asked for none,
	// and best all of them in one Conn.Push before it hands the work on. It
	// may block; the connection is not read meanwhile. cmds is reused after
	// the call, what its elements point at is not; the session may clear them.
	Handle(cmds []Command)

	// Gone is called once, when the connection will not be read any more: it
	// ended, failed, was killed, or the server stops. Replies may still be
	// pending; each of them must become ready, as only then it is sent or
	// dropped and the connection's memory given back.
	Gone()
}

// Reply is the answer to one command, or nothing at all if it appends no byte.
// Ready may be called from the reader and the writer goroutine, Append and Drop
// from the writer goroutine only.
type Reply interface {
	// Ready tells whether the answer is known. Once true it stays true. Who
	// makes it true calls Conn.Wake afterwards.
	Ready() bool

	// Append renders the answer. Called once at most, in window order, after
	// Ready.
	Append(w *Writer)

	// Drop tells that the client did not get the answer: the connection was
	// gone before Append, or the write of what Append rendered failed. Called
	// once at most, after Ready. That it was not called proves only that the
	// operating system took the bytes.
	Drop()
}

// Perishable is a Reply that is worth something only to a client that is there,
// like messages that were leased to it. Once the client has ended its sending
// side it may have died or merely have nothing more to ask; other replies are
// still sent then, a perishable one is dropped.
type Perishable interface {
	Reply
	Perishable() bool
}

// Bytes returns a finished reply: b in wire format, which must not change any
// more. Replies may share b.
func Bytes(b []byte) Reply { return bytesReply(b) }

type bytesReply []byte

func (bytesReply) Ready() bool        { return true }
func (b bytesReply) Append(w *Writer) { w.Raw(b) }
func (bytesReply) Drop()              {}

// Reserved returns a reply with the memory that Conn.Reserve has set aside for it.
func Reserved(r Reply, room Room) Reply { return &reservedReply{r, room} }

type reservedReply struct {
	Reply
	room Room
}

// Unwrap returns the reply within.
func (r *reservedReply) Unwrap() Reply { return r.Reply }

// Perishable implements Perishable as the reply within does.
func (r *reservedReply) Perishable() bool {
	p, ok := r.Reply.(Perishable)
	return ok && p.Perishable()
}

// closeReply is the place in the window where the connection ends.
type closeReply struct{}

func (closeReply) Ready() bool    { return true }
func (closeReply) Append(*Writer) {}
func (closeReply) Drop()          {}
