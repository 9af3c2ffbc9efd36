package commands

import (
	"slices"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

func groups() Spec {
	return container("FILA.GROUP", "fila", "0.1.0", "the commands about groups of messages, which are done together", groupCancel(), groupGet(), groupList(), groupOpen(), groupSeal())
}

func groupOpen() Spec {
	return Spec{
		Name: "OPEN", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Opens a group, to which messages of any queues belong that are enqueued or published with GROUP. Once it is sealed and none of them is pending, its message is enqueued: " +
			"exactly once, in the same write as the end of the last member, with the headers fila-group, fila-group-done and fila-group-dead. " +
			"Returns 1, or 0 if there is a group of that name, also one that has ended: it stays as it is. " +
			"The options are those of FILA.ENQUEUE without DEDUP and UNIQUE. The message is checked and the hook of its queue runs now; DELAY and TTL count from its enqueue, which nothing refuses: " +
			"depth, pause and budgets are not asked. If there is no such queue then, the group is cancelled. " +
			"A member ends when it is acked (done), dead or past its TTL (dead), cancelled or purged (cancelled). With WHEN ENDED, the default, all of these count. " +
			"With WHEN DONE, dead members keep the group waiting: until they are redriven and acked, or removed from the dead-letter queue, which cancels them. " +
			"With EXPIRE the group is cancelled so long after now, unless it has ended. " +
			"With GROUP, the message is a pending member of another group from now on.",
		Flags:  []string{"write", "denyoom"},
		Access: Produce, ACL: []string{"produce"},
		Args: slices.Concat([]Arg{{Name: "group-name", Type: Key}, {Name: "queue", Type: Key}, {Name: "payload", Type: String}}, contentArgs(dueArg()), []Arg{
			groupArg(),
			{Name: "when", Type: OneOf, Token: "WHEN", Optional: true, Args: []Arg{{Name: "done", Type: PureToken, Token: "DONE"}, {Name: "ended", Type: PureToken, Token: "ENDED"}}},
			{Name: "ms", Type: Integer, Token: "EXPIRE", Optional: true, Min: 1, Max: millisMax},
		}),
		Examples: []Example{
			{"FILA.QUEUE CREATE pages", "OK"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{"FILA.GROUP OPEN import-7 reports summary", "(integer) 1"},
			{"FILA.GROUP OPEN import-7 reports summary", "(integer) 0"},
			{"FILA.ENQUEUE pages page-1 GROUP import-7", `"<id>"`},
			{"FILA.GROUP OPEN import-8 reports summary KEY tenant-1 PRIORITY 9 WHEN DONE EXPIRE 3600000", "(integer) 1"},
		},
		Parse: parseGroupOpen,
	}
}

// groupArg is the option that makes a message a member of a group.
func groupArg() Arg { return Arg{Name: "group", Type: Key, Token: "GROUP", Optional: true} }

// parseGroup parses groupArg.
func parseGroup(in *input, req *engine.Enqueue) error {
	req.Group = in.Text("group")
	return in.Filled("group", "GROUP", "without it the message is a member of no group")
}

type groupOpenCall struct {
	req  engine.OpenGroup
	made bool
	size int
}

func parseGroupOpen(s *Session, in *input) (call, error) {
	c := &groupOpenCall{req: engine.OpenGroup{Name: in.Text("group-name"), WhenDone: in.Has("when.done"), Expire: in.Millis("expire", 0)}, size: in.Size()}
	m := &c.req.Message
	m.Queue = in.Text("queue")
	if err := parseMessage(s, in, m); err != nil {
		return nil, err
	}
	m.At = int64(in.Millis("at", 0)) // Unix time in nanoseconds
	return c, parseGroup(in, m)
}

// Prepare runs the hook of the queue and encodes the message on the connection.
func (c *groupOpenCall) Prepare(s *Session) error { return s.engine().PrepareGroup(&c.req) }

// Bytes implements weigher.
func (c *groupOpenCall) Bytes() int { return c.size }

// Preflight implements engine.Preflighter.
func (c *groupOpenCall) Preflight(tx *engine.Tx) error { return c.req.Preflight(tx) }

// Apply implements engine.Call.
func (c *groupOpenCall) Apply(tx *engine.Tx) (err error) {
	c.made, err = tx.OpenGroup(&c.req)
	return err
}

// Render writes whether the group is new.
func (c *groupOpenCall) Render(_ *Handler, w *resp.Writer) error {
	writeBool(w, c.made)
	return nil
}

// groupCall is a call about a group by its name.
type groupCall struct {
	answered[engine.GroupInfo]

	req engine.GroupCall
}

// Preflight implements engine.Preflighter.
func (c *groupCall) Preflight(tx *engine.Tx) error { return c.req.Preflight(tx) }

// aboutGroup makes the call of a command with the name of a group.
func aboutGroup(in *input, take func(tx *engine.Tx, req *engine.GroupCall) (engine.GroupInfo, error), write func(w *resp.Writer, info engine.GroupInfo)) (call, error) {
	c := &groupCall{req: engine.GroupCall{Name: in.Text("group-name")}}
	c.take = func(tx *engine.Tx) (engine.GroupInfo, error) { return take(tx, &c.req) }
	c.write = write
	return c, nil
}

func groupSeal() Spec {
	return Spec{
		Name: "SEAL", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Has a group take no more members, and returns how many are pending. A group without pending members is done at once. A group that is sealed already, or has ended, stays as it is.",
		Flags:   []string{"write", "denyoom", "fast"},
		Access:  Produce, ACL: []string{"produce"},
		Args: []Arg{{Name: "group-name", Type: Key}},
		Examples: []Example{
			{"FILA.QUEUE CREATE reports", "OK"},
			{"FILA.GROUP OPEN import-7 reports summary", "(integer) 1"},
			{"FILA.GROUP SEAL import-7", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			return aboutGroup(in, func(tx *engine.Tx, req *engine.GroupCall) (info engine.GroupInfo, err error) {
				info.Pending, err = tx.SealGroup(req)
				return info, err
			}, func(w *resp.Writer, info engine.GroupInfo) { w.Int(info.Pending) })
		},
	}
}

func groupCancel() Spec {
	return Spec{
		Name: "CANCEL", Group: "fila", Since: "0.1.0", Complexity: "O(1); members are removed later, in slices, as a search of their queues", Returns: "integer",
		Summary: "Cancels a group: its message, and each member that is not leased. From the reply on none of them is delivered. " +
			"A lease ends as it would, but a failure is not retried, and FILA.EXTEND is refused with CANCELLED. Returns 1, or 0 if the group has ended.",
		Flags:  []string{"write", "fast"},
		Access: Produce, ACL: []string{"produce"},
		Args: []Arg{{Name: "group-name", Type: Key}},
		Examples: []Example{
			{"FILA.QUEUE CREATE reports", "OK"},
			{"FILA.GROUP OPEN import-7 reports summary", "(integer) 1"},
			{"FILA.GROUP CANCEL import-7", "(integer) 1"},
			{"FILA.GROUP CANCEL import-7", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			did := false
			return aboutGroup(in, func(tx *engine.Tx, req *engine.GroupCall) (info engine.GroupInfo, err error) {
				did, err = tx.CancelGroup(req)
				return info, err
			}, func(w *resp.Writer, _ engine.GroupInfo) { writeBool(w, did) })
		},
	}
}

func groupGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1); of a group that has ended O(N) off-loop where N is the number of generations of such groups", Returns: "map or nil",
		Summary: "Returns the state of a group and the numbers of its members, or nil if none of that name is known. A group is known for groups.keep_ms after its end.",
		Flags:   []string{"readonly"}, Access: Look, ACL: []string{"inspect"},
		Reply: "A map: " + groupFields(&engine.GroupInfo{}).names() + ". state is open, sealed, done or cancelled. members is the sum of pending, done, dead and cancelled. " +
			"message is the id of the message that was enqueued at the end, queue where; error says why the group is cancelled, nil if a command did it. The times are nil where they do not apply.",
		Args: []Arg{{Name: "group-name", Type: Key}},
		Examples: []Example{
			{"FILA.GROUP GET import-7", "(nil)"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{"FILA.GROUP OPEN import-7 reports summary", "(integer) 1"},
			{"FILA.GROUP GET import-7", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			found := false
			return aboutGroup(in, func(tx *engine.Tx, req *engine.GroupCall) (info engine.GroupInfo, err error) {
				info, found, err = tx.Group(req)
				return info, err
			}, func(w *resp.Writer, info engine.GroupInfo) {
				if !found {
					w.Null()
					return
				}
				groupFields(&info).write(w)
			})
		},
	}
}

func groupFields(i *engine.GroupInfo) *fields {
	f := newFields()
	f.text("state", i.State)
	f.number("members", i.Members())
	f.number("pending", i.Pending)
	f.number("done", i.Done)
	f.number("dead", i.Dead)
	f.number("cancelled", i.Cancelled)
	if i.Message == (engine.ID{}) {
		f.optional("message", "")
	} else {
		f.text("message", i.Message.String())
	}
	f.optional("error", i.Error)
	f.at("opened_at", i.OpenedAt)
	f.at("sealed_at", i.SealedAt)
	f.at("ended_at", i.EndedAt)
	f.text("queue", i.Queue)
	return f
}

// listedGroup are the fields of a group in a list.
func listedGroup(i *engine.GroupInfo) *fields {
	f := newFields()
	f.text("name", i.Name)
	of := groupFields(i)
	*f = append(*f, *of...)
	of.recycle()
	return f
}

func groupList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT", Returns: pageOfMaps,
		Summary: "Returns the groups that have not ended and that the user has a right to, a page at a time, in the order in which they were opened. A cancelled group is among them while members of it are leased.",
		Flags:   []string{"readonly"}, Access: Look, ACL: []string{"inspect"},
		Reply: pageReply + "A group is a map: " + listedGroup(&engine.GroupInfo{}).names() + ". The fields are those of FILA.GROUP GET.",
		Args:  pageOptions(),
		Examples: []Example{
			{"FILA.GROUP LIST", "1) \"0\"\n2) (empty array)"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{"FILA.GROUP OPEN import-7 reports summary", "(integer) 1"},
			{"FILA.GROUP LIST MATCH import-* COUNT 100", "..."},
		},
		Room:   pageOf[engine.GroupInfo](2, tinyRoom),
		Memory: "1,200 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			p, user := parsePage(in), in.User
			return answerPage(func(tx *engine.Tx) (uint64, []engine.GroupInfo, error) {
				return tx.Groups(p.cursor, p.count, func(name string) bool { return p.match(name) && user.May(acl.Look, name) })
			}, listedGroup), nil
		},
	}
}
