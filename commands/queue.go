package commands

import (
	"math"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

func queue() Spec {
	return Spec{
		Name: "FILA.QUEUE", Group: "fila", Since: "0.1.0", Complexity: "Depends on subcommand.",
		Summary:     "A container for the commands that manage queues.",
		Subcommands: []Spec{queueAlter(), queueApply(), queueCreate(), queueDelete(), help("FILA.QUEUE"), queueInfo(), queueList(), queuePause(), queueResume()},
	}
}

func queueOptions() []Arg {
	ms := func(token string, least int64) Arg {
		return Arg{Name: "ms", Type: Integer, Token: token, Optional: true, Min: least, Max: millisMax}
	}
	number := func(token string, most int64) Arg {
		return Arg{Name: "n", Type: Integer, Token: token, Optional: true, Max: most}
	}
	return []Arg{
		ms("VISIBILITY", 1),
		number("MAXATTEMPTS", math.MaxUint32),
		ms("BACKOFF", 0),
		ms("MAXBACKOFF", 0),
		ms("TTL", 0),
		number("MAXDEPTH", 0),
		number("KEYMAXDEPTH", 0),
		ms("DEDUPWINDOW", 0),
		{Name: "percent", Type: Integer, Token: "BACKOFFJITTER", Optional: true, Max: 100},
		{Name: "dead-letter-queue", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "name", Type: Key, Token: "DLQ", Access: Produce},
			{Name: "nodlq", Type: PureToken, Token: "NODLQ"},
		}},
	}
}

func queueCreate() Spec {
	return Spec{
		Name: "CREATE", Group: "fila", Since: "0.1.0", Complexity: "O(1); O(N) with DLQ where N is the number of queues",
		Summary: "Makes a queue, and a dead-letter queue <name>.dlq unless DLQ or NODLQ says otherwise. A queue that DLQ names gives up the <name>.dlq that it got itself, unless it has been used: then it is refused. " +
			"With IFNOTEXISTS an existing queue is left as it is, whatever the other options say, and the reply is OK.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Fills: filledByCreate,
		Args: append(append([]Arg{{Name: "name", Type: Key}}, queueOptions()...),
			Arg{Name: "ifnotexists", Type: PureToken, Token: "IFNOTEXISTS", Optional: true}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE CREATE orders IFNOTEXISTS", "OK"},
			{"FILA.QUEUE CREATE mails VISIBILITY 60000 MAXATTEMPTS 5 BACKOFF 500 MAXBACKOFF 60000 DLQ orders.dlq", "OK"},
			{"FILA.QUEUE CREATE logs NODLQ", "OK"},
		},
		Parse: func(in *input) (call, error) {
			set := (*engine.Tx).CreateQueue
			if in.has("ifnotexists") {
				set = (*engine.Tx).EnsureQueue
			}
			return &queueSet{name: in.text("name"), options: parseQueueOptions(in), set: set}, nil
		},
	}
}

// filledByCreate is the dead-letter queue that a new queue gets without its being
// named: it may be there already, and another's.
func filledByCreate(in *input) []string {
	if in.has("dlq") || in.has("nodlq") {
		return nil
	}
	return []string{in.text("name") + engine.DLQSuffix}
}

func queueAlter() Spec {
	return Spec{
		Name: "ALTER", Group: "fila", Since: "0.1.0", Complexity: "O(1); O(N) with another DLQ where N is the number of queues",
		Summary: "Changes the settings of a queue that are given and leaves the others.",
		Flags:   []string{"write", "denyoom"},
		ACL:     []string{"admin"},
		Args:    append([]Arg{{Name: "name", Type: Key}}, queueOptions()...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE ALTER orders MAXATTEMPTS 3", "OK"},
		},
		Parse: func(in *input) (call, error) {
			return &queueSet{name: in.text("name"), options: parseQueueOptions(in), set: (*engine.Tx).AlterQueue}, nil
		},
	}
}

func parseQueueOptions(in *input) engine.QueueOptions {
	duration := func(name string) *time.Duration {
		if !in.has(name) {
			return nil
		}
		d := in.millis(name, 0)
		return &d
	}
	o := engine.QueueOptions{
		Visibility: duration("visibility"), Backoff: duration("backoff"), MaxBackoff: duration("maxbackoff"),
		TTL: duration("ttl"), DedupWindow: duration("dedupwindow"),
		MaxDepth: in.natural("maxdepth"), KeyMaxDepth: in.natural("keymaxdepth"), NoDLQ: in.has("nodlq"),
	}
	if n := in.natural("maxattempts"); n != nil {
		attempts := uint32(*n) //nolint:gosec // the Spec bounds it
		o.MaxAttempts = &attempts
	}
	if n := in.natural("backoffjitter"); n != nil {
		percent := uint32(*n) //nolint:gosec // the Spec bounds it
		o.BackoffJitter = &percent
	}
	if in.has("dlq") {
		name := in.text("dlq")
		o.DLQ = &name
	}
	return o
}

// queueSet makes or changes a queue.
type queueSet struct {
	plainOK
	name    string
	options engine.QueueOptions
	set     func(*engine.Tx, string, engine.QueueOptions) error
}

// Apply implements engine.Call.
func (c *queueSet) Apply(tx *engine.Tx) error { return c.set(tx, c.name, c.options) }

// plainOK renders success without a value.
type plainOK struct{}

// Render writes OK.
func (plainOK) Render(_ *Handler, w *resp.Writer) error {
	w.OK()
	return nil
}

func queueDelete() Spec {
	return Spec{
		Name: "DELETE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues; what the queue held is given back in slices",
		Summary: "Deletes a queue; one that holds messages only with FORCE. Its dead-letter queue stays.",
		Flags:   []string{"write"},
		ACL:     []string{"admin"},
		Args: []Arg{
			{Name: "name", Type: Key},
			{Name: "force", Type: PureToken, Token: "FORCE", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE DELETE orders", "OK"},
		},
		Parse: func(in *input) (call, error) { return &queueDrop{name: in.text("name"), force: in.has("force")}, nil },
	}
}

type queueDrop struct {
	plainOK
	name  string
	force bool
}

// Apply implements engine.Call.
func (c *queueDrop) Apply(tx *engine.Tx) error { return tx.DeleteQueue(c.name, c.force) }

func queueList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues",
		Summary: "Returns the names of the queues that the user has a right to, sorted.",
		Flags:   []string{"readonly"},
		Args:    []Arg{{Name: "pattern", Type: Pattern, Token: "MATCH", Optional: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE LIST MATCH ord*", "1) \"orders\"\n2) \"orders.dlq\""},
		},
		Parse: func(in *input) (call, error) {
			return &queueNames{pattern: string(in.bytes("match")), all: !in.has("match"), user: in.user}, nil
		},
	}
}

type queueNames struct {
	pattern string
	all     bool
	user    *acl.User // to whom they are shown
	names   []string
}

// Apply implements engine.Call.
func (c *queueNames) Apply(tx *engine.Tx) error {
	c.names = tx.Queues()
	return nil
}

// Render writes the names that match.
func (c *queueNames) Render(_ *Handler, w *resp.Writer) error {
	names := make([]string, 0, len(c.names))
	for _, n := range c.names {
		if (c.all || globMatch(c.pattern, n)) && c.user.May(acl.Look, n) {
			names = append(names, n)
		}
	}
	w.Array(len(names))
	for _, n := range names {
		w.BulkString(n)
	}
	return nil
}
