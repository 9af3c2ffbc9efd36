package commands

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/resp"
)

func queue() Spec {
	return container("FILA.QUEUE", "fila", "0.1.0", "the commands that manage queues", queueAlter(), queueApply(), queueCreate(), queueDelete(), queueInfo(), queueList(), queuePause(), queueResume())
}

// queueOptions returns the settings of a queue as arguments, in the order of INFO.
func queueOptions() []Arg {
	var first, added []Arg
	for _, row := range queueset.All() {
		arg := Arg{Name: string(row.Unit), Type: Integer, Token: row.Token, Optional: true, Min: row.Least(), Max: row.Max}
		if row.Unit == queueset.Switch {
			arg = Arg{Name: row.Name, Type: OneOf, Token: row.Token, Optional: true, Args: []Arg{
				{Name: "on", Type: PureToken, Token: "ON"},
				{Name: "off", Type: PureToken, Token: "OFF"},
			}}
		}
		if row.Added() {
			added = append(added, arg)
		} else {
			first = append(first, arg)
		}
	}
	return append(append(first, added...),
		Arg{Name: "dead-letter-queue", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "name", Type: Key, Token: "DLQ", Access: Produce},
			{Name: "nodlq", Type: PureToken, Token: "NODLQ"},
		}})
}

func queueCreate() Spec {
	return Spec{
		Name: "CREATE", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of queues", Returns: "status",
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
		Parse: func(_ *Session, in *input) (call, error) {
			set := (*engine.Tx).CreateQueue
			if in.Has("ifnotexists") {
				set = (*engine.Tx).EnsureQueue
			}
			return setQueue(in, set), nil
		},
	}
}

// filledByCreate returns the dead-letter queue that a new queue gets by default. It may exist already
// and belong to another queue.
func filledByCreate(in *input) []string {
	if in.Has("dlq") || in.Has("nodlq") {
		return nil
	}
	return []string{in.Text("name") + engine.DLQSuffix}
}

func queueAlter() Spec {
	return Spec{
		Name: "ALTER", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of queues", Returns: "status",
		Summary: "Changes the settings of a queue that are given and leaves the others.",
		Flags:   []string{"write", "denyoom"},
		ACL:     []string{"admin"},
		Args:    append([]Arg{{Name: "name", Type: Key}}, queueOptions()...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE ALTER orders MAXATTEMPTS 3", "OK"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			return setQueue(in, (*engine.Tx).AlterQueue), nil
		},
	}
}

func parseQueueOptions(in *input) engine.QueueOptions {
	o := engine.QueueOptions{Given: queueset.Given{}, NoDLQ: in.Has("nodlq")}
	for s, row := range queueset.All() {
		slot := strings.ToLower(row.Token)
		switch {
		case row.Unit != queueset.Switch:
			if n := in.Natural(slot); n != nil {
				o.Given[s] = *n
			}
		case in.Has(slot + ".on"):
			o.Given[s] = 1
		case in.Has(slot + ".off"):
			o.Given[s] = 0
		}
	}
	if in.Has("dlq") {
		name := in.Text("dlq")
		o.DLQ = &name
	}
	return o
}

// setQueue returns the call that creates or alters a queue.
func setQueue(in *input, set func(*engine.Tx, string, engine.QueueOptions) error) call {
	name, options := in.Text("name"), parseQueueOptions(in)
	return answerOK(func(tx *engine.Tx) error { return set(tx, name, options) })
}

func queueDelete() Spec {
	return Spec{
		Name: "DELETE", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of queues; fairness keys, leases and messages in memory are reclaimed in slices",
		Returns: "status",
		Summary: "Deletes a queue. A queue with messages needs FORCE. Its dead-letter queue is kept.",
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
		Parse: func(_ *Session, in *input) (call, error) {
			name, force := in.Text("name"), in.Has("force")
			return answerOK(func(tx *engine.Tx) error { return tx.DeleteQueue(name, force) }), nil
		},
	}
}

func queueList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues; in the loop only after a queue was created or deleted", Returns: "array of string",
		Summary: "Returns the names of the queues that the user has a right to, sorted.",
		Flags:   []string{"readonly"},
		Args:    []Arg{{Name: "pattern", Type: Pattern, Token: "MATCH", Optional: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE LIST MATCH ord*", "1) \"orders\"\n2) \"orders.dlq\""},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			return listQueues(in.User, string(in.Bytes("match")), !in.Has("match")), nil
		},
	}
}

// listQueues returns the call that lists the queues that the user has a right to: all of them, or those
// that match. Matching is done where they are written and not in the turn, which delays other clients.
func listQueues(user *acl.User, pattern string, all bool) call {
	return &answered[[]string]{take: (*engine.Tx).Queues, write: func(w *resp.Writer, queues []string) {
		names := make([]string, 0, len(queues))
		for _, n := range queues {
			if (all || glob.Match(pattern, n)) && user.May(acl.Look, n) {
				names = append(names, n)
			}
		}
		writeTexts(w, names)
	}}
}

func queueInfo() Spec {
	return Spec{
		Name: "INFO", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "map",
		Summary: "Returns a queue's settings, what it holds, and what it has done since the broker started.",
		Flags:   []string{"readonly", "fast"},
		Access:  Look,
		Reply: "A map, always with the same fields in the same order: " + (&queueLook{}).fields().names() +
			". A limit of 0 is none, but lua_timeout_ms, lua_memory_bytes and breaker_errors are then those of the configuration (lua.timeout_ms and so on); dlq is nil where dead messages are dropped; counting is 1 while what the store held at start is still being counted.",
		Args: []Arg{{Name: "name", Type: Key}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE INFO orders", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) { return &queueLook{name: in.Text("name")}, nil },
	}
}

type queueLook struct {
	name string
	info engine.QueueInfo
}

// Preflight implements engine.Preflighter, so that the counts are exact.
func (c *queueLook) Preflight(tx *engine.Tx) error { return tx.AwaitCounts() }

// Apply implements engine.Call.
func (c *queueLook) Apply(tx *engine.Tx) (err error) {
	if err := c.Preflight(tx); err != nil {
		return err
	}
	c.info, err = tx.QueueInfo(c.name)
	return err
}

// Render writes a map.
func (c *queueLook) Render(_ *Handler, w *resp.Writer) error {
	c.fields().write(w)
	return nil
}

func (c *queueLook) fields() *fields {
	q := &c.info
	var f fields
	f.text("name", q.Name)
	f.settings(&q.Values, 0, recordOfFirst)
	f.optional("dlq", q.DLQ)
	f.flag("is_dlq", q.DeadLetter)
	f.flag("paused_in", q.PausedIn)
	f.flag("paused_out", q.PausedOut)
	f.number("created_at", q.CreatedAt.UnixMilli())
	f.counts(&q.Counts)
	f.settings(&q.Values, recordOfFirst, recordBeforeTopics)
	f.number("topics", q.Topics)
	f.settings(&q.Values, recordBeforeTopics, math.MaxInt)
	return &f
}

// FILA.QUEUE INFO grows at its end only: a setting that is added later comes behind all that was there before. Numbers of
// records tell what was.
const (
	recordOfFirst      = queueset.FirstRecord
	recordBeforeTopics = 23
)

// settings adds the settings whose numbers in the record of a queue are above one number, and at most another.
func (f *fields) settings(v *queueset.Values, above, most int) {
	for s, row := range queueset.All() {
		if n := int(row.Record); n > above && n <= most {
			f.count(row.Name, v[s])
		}
	}
}

func queuePause() Spec {
	return pausing("PAUSE", true,
		"Stops a queue: with IN it refuses new messages, with OUT it hands none out, without either both. What is leased stays leased, and clients that wait go on waiting.")
}

func queueResume() Spec {
	return pausing("RESUME", false, "Lets a queue go on: with IN it takes messages again, with OUT it hands them out, without either both. Clients that wait are served at once.")
}

func pausing(name string, paused bool, summary string) Spec {
	return Spec{
		Name: name, Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "status",
		Summary: summary,
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args: []Arg{
			{Name: "name", Type: Key},
			{Name: "direction", Type: OneOf, Optional: true, Args: []Arg{
				{Name: "in", Type: PureToken, Token: "IN"},
				{Name: "out", Type: PureToken, Token: "OUT"},
			}},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE " + name + " orders OUT", "OK"},
			{"FILA.QUEUE " + name + " orders", "OK"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			name, intake, deliveries := in.Text("name"), !in.Has("out"), !in.Has("in")
			return answerOK(func(tx *engine.Tx) error { return tx.Pause(name, intake, deliveries, paused) }), nil
		},
	}
}

func purge() Spec {
	return Spec{
		Name: "FILA.PURGE", Group: "fila", Since: "0.1.0", Complexity: "O(K) where K is the number of fairness keys with settings of their own, in slices; fairness keys, leases and messages in memory are reclaimed in slices. With KEY O(N) where N is the number of its messages, in slices; pages of 4 MiB are read off-loop, one after the other",
		Returns: "integer",
		Summary: "Removes all messages of a queue, or of one of its fairness keys, and returns how many there were. The receipts of leased ones are lost; " +
			"settings stay, and so does the dead-letter queue. With the whole queue, its deduplication ids are forgotten.",
		Flags: []string{"write"},
		ACL:   []string{"admin"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.PURGE orders KEY tenant-1", "(integer) 1"},
			{"FILA.PURGE orders", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			if err := in.Filled("key", "KEY", "FILA.PURGE without KEY removes all messages of the queue"); err != nil {
				return nil, err
			}
			req := engine.Purge{Queue: in.Text("queue"), Key: in.Text("key")}
			return answerInt(func(tx *engine.Tx) (int, error) { return tx.Purge(&req) }), nil
		},
	}
}

func pastOfQueues() Spec {
	return Spec{
		Name: "FILA.HISTORY", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "array of map",
		Summary: "Returns what a queue, one of its fairness keys, or all queues together did lately.",
		Flags:   []string{"readonly", "fast"},
		Access:  Look,
		Reply: "An array of moments, the oldest first, each a map: " + momentFields(&engine.Moment{}).names() + ". " +
			"RANGE is how far it goes back, in seconds (600): a day at most, a key an hour. Moments are ten seconds apart, a minute where it is more than 15 minutes, ten minutes where it is more than an hour; the last one is the newest. " +
			"Counters are as in FILA.STATS, since the start, and negative before it: the difference of two moments is what happened between them. Once a minute it is written what a restart or another leader " +
			"needs: what is before a start is minutes apart, and a crash takes the last minute at most. " +
			"With KEY a moment is: " + keyMomentFields(&engine.KeyMoment{}).names() + ". There counters begin when the key is followed, and enqueued are the messages that the key was given, in whatever way; oldest_ms is for how long its first message had been ready, nil without one in memory; " +
			"queue_delivered are the deliveries of the queue: the share of the key between two moments is the quotient of the differences of delivered and queue_delivered. " +
			"At most " + strconv.Itoa(engine.KeyHistoriesOfQueue) + " keys of a queue have a history, " + strconv.Itoa(engine.KeyHistories) + " of all: each while there is room, then those that deliver or hold most, " +
			"and any that was asked for in the last five minutes, from then on.",
		Args: []Arg{
			{Name: "queue", Type: Key, Optional: true},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "seconds", Type: Integer, Token: "RANGE", Optional: true, Min: 1, Max: int64(engine.HistoryMax / time.Second)},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.HISTORY orders", "..."},
			{"FILA.HISTORY orders RANGE 86400", "..."},
			{"FILA.HISTORY orders KEY tenant-1 RANGE 3600", "..."},
			{"FILA.HISTORY", "..."},
		},
		Room:   always(engine.MomentsMax * sizeOf[engine.Moment]() * historyCopies),
		Memory: "30 KiB",
		Parse: func(_ *Session, in *input) (call, error) {
			queue, key, last := in.Text("queue"), in.Text("key"), time.Duration(in.Integer("range", historySeconds))*time.Second
			if !in.Has("key") {
				return answerMaps(func(tx *engine.Tx) ([]engine.Moment, error) { return tx.History(queue, last) }, momentFields), nil
			}
			if !in.Has("queue") {
				return nil, command.Refuse("ERR", "KEY is a fairness key of a queue, which is missing")
			}
			return answerMaps(func(tx *engine.Tx) ([]engine.KeyMoment, error) { return tx.KeyHistory(queue, key, last) }, keyMomentFields),
				in.Filled("key", "KEY", "without it the history is that of the queue")
		},
	}
}

// historySeconds is how far FILA.HISTORY goes back without RANGE.
const historySeconds = 600

func momentFields(m *engine.Moment) *fields {
	f := newFields()
	f.at("at", m.At)
	f.count("enqueued", m.Enqueued)
	f.count("delivered", m.Delivered)
	f.count("acked", m.Acked)
	f.count("nacked", m.Nacked)
	f.count("expired", m.Expired)
	f.number("ready", m.Ready)
	f.number("delayed", m.Delayed)
	f.number("leased", m.Leased)
	f.number("dead", m.Dead)
	return f
}

func keyMomentFields(m *engine.KeyMoment) *fields {
	f := newFields()
	f.at("at", m.At)
	f.count("enqueued", m.Enqueued)
	f.count("delivered", m.Delivered)
	f.count("acked", m.Acked)
	f.number("ready", m.Ready)
	f.number("delayed", m.Delayed)
	f.number("leased", m.Leased)
	f.age("oldest_ms", m.At, m.ReadySince)
	f.count("queue_delivered", m.OfQueue)
	return f
}
