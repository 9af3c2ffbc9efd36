package commands

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func figures() Spec {
	return Spec{
		Name: "FILA.FIGURES", Group: "fila", Since: "0.1.0",
		Complexity: "O(N) where N is COUNT, in slices, or O(1) with QUEUE; with BY or GROUP O(Q*log(N)) where Q is the number of queues, in slices; in addition a sweep of all fairness keys once per admin.figures_ms, which all clients share, of at most 2,048 keys a turn",
		Returns:    pageOfMaps,
		Summary:    "Returns queues with all their figures, a page at a time, in the order of their creation or of one of the figures; or what is wrong with them, in groups. Only those that the user has a right to.",
		Flags:      []string{"readonly"},
		Access:     Look,
		Reply: pageReply + "With QUEUE it is the page of that queue alone. A queue is a map: " + figuresFields(&engine.QueueFigures{}, time.Time{}).names() + ". " +
			"Counts are as in FILA.STATS, and so are state and reason. keys_... are the fairness keys in each state of FILA.KEYS, oldest_ready_ms is for how long the message waits that is ready longest; " +
			"they are of a sweep over all keys, swept_ms ago, which is nil for a queue without keys. " +
			"wait_... are the times from being ready until the delivery, work_... those from the delivery until the end of the lease, since the start of the broker: " +
			"half and 99 % of them are not longer. ordered is 1 for an ordered queue. scripts_open are the hooks that have failed too often in a row, see FILA.SCRIPT STATS. " +
			"dead_letters are the dead messages that are shown with the queue: those of its dead-letter queue, if it is the only one to use it (dlq_of there), else those that it holds itself. " +
			"in_rate and out_rate are messages enqueued and delivered in a second, over the last ten to twenty seconds. " +
			"troubles are the reasons why an operator should look at the queue, the most urgent first, of: " + troubleWords() + ". " +
			"FOLD leaves out dead-letter queues that are shown with their queue. STATE and TROUBLE select queues that are in a state, and that have a trouble, or one at all with any. " +
			"BY sorts all queues: the greatest figures first, by NAME from a to z, by TROUBLE the most urgent first and of these those with the most messages; REV is the other way round. Its cursors are texts, and a queue whose figure changes meanwhile may be in two pages or in none. " +
			"With GROUP TROUBLE a map is a trouble with the queues that have it, the most urgent first, and at the end those that have any: " + troubleFields(0, &engine.TroubleGroup{}, time.Time{}).names() + "; " +
			"messages are those that it concerns, oldest_ms is for how long one of the queues has a message ready, first are the queues with the most messages, at most 5, a map of names and numbers.",
		Args: []Arg{
			{Name: "name", Type: Key, Token: "QUEUE", Optional: true},
			{Name: "pattern", Type: Pattern, Token: "MATCH", Optional: true},
			{Name: "c", Type: String, Token: "CURSOR", Optional: true},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
			{Name: "fold", Type: PureToken, Token: "FOLD", Optional: true},
			{Name: "state", Type: String, Token: "STATE", Optional: true},
			{Name: "trouble", Type: String, Token: "TROUBLE", Optional: true},
			{Name: "order", Type: OneOf, Token: "BY", Optional: true, Args: columnTokens()},
			{Name: "reverse", Type: PureToken, Token: "REV", Optional: true},
			{Name: "what", Type: OneOf, Token: "GROUP", Optional: true, Args: []Arg{{Name: "trouble", Type: PureToken, Token: "TROUBLE"}}},
		},
		Examples: []Example{
			{"FILA.FIGURES", "1) \"0\"\n2) (empty array)"},
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.FIGURES MATCH ord* COUNT 100", "..."},
			{"FILA.FIGURES QUEUE orders", "..."},
			{"FILA.FIGURES FOLD BY READY COUNT 100", "..."},
			{"FILA.FIGURES FOLD TROUBLE no_consumer BY TROUBLE", "1) \"0\"\n2) (empty array)"},
			{"FILA.FIGURES GROUP TROUBLE", "1) \"0\"\n2) (empty array)"},
		},
		Room:   pageOf[engine.QueueFigures](3, tinyRoom),
		Memory: "3,000 bytes for each queue of COUNT",
		Parse:  parseFigures,
	}
}

func columnTokens() []Arg {
	all := make([]Arg, engine.Columns)
	for c := range all {
		word := engine.Column(c).String()
		all[c] = Arg{Name: word, Type: PureToken, Token: strings.ToUpper(word)}
	}
	return all
}

// anyTrouble selects queues that have a trouble, whichever it is.
const anyTrouble = "any"

// troubleWords lists the troubles, for documents.
func troubleWords() string {
	return "script: a hook fails, and its safe decisions are used; no_consumer: messages are ready, and no consumer is there; dead: dead messages are there; " +
		"full: it has room for less than a tenth of max_depth; late: a message is ready for more than 15 minutes; expiring: of the deliveries of the last ten minutes, one in twenty has expired; " +
		"paused: in or out; no_credit, held, throttled, concurrency, ordered: messages are stopped so, as in state"
}

func parseFigures(_ *Session, in *input) (call, error) {
	p, user, now := page{count: int(in.Integer("count", pageCount)), pattern: string(in.Bytes("match")), all: !in.Has("match")}, in.User, time.Time{}
	may := func(name string) bool { return user.May(acl.Look, name) }
	req := engine.Figures{
		Queue: in.Text("queue"), Count: p.count, Match: func(name string) bool { return p.match(name) && may(name) },
		May: may, Fold: in.Has("fold"),
	}
	by := sortedBy(in)
	if req.Queue != "" && (by >= 0 || slices.ContainsFunc([]string{"match", "cursor", "count", "fold", "state", "trouble", "rev", "group.trouble"}, in.Has)) {
		return nil, command.Refuse("ERR", "QUEUE is a page of one queue, it does not go with other options")
	}
	if err := selectFigures(in, &req); err != nil {
		return nil, err
	}
	if in.Has("group.trouble") {
		if by >= 0 || slices.ContainsFunc([]string{"cursor", "count", "rev"}, in.Has) {
			return nil, command.Refuse("ERR", "GROUP has all groups, it does not go with CURSOR, COUNT, BY and REV")
		}
		return answerTroubles(req), nil
	}
	if err := sortFigures(in, by, &req); err != nil {
		return nil, err
	}
	next := "0"
	return &answered[[]*engine.QueueFigures]{
		take: func(tx *engine.Tx) ([]*engine.QueueFigures, error) {
			got, err := tx.Figures(&req)
			if now, next = got.Now, strconv.FormatUint(got.Next, 10); got.Behind != nil {
				next = got.Behind.Cursor()
			}
			return got.Queues, err
		},
		write: func(w *resp.Writer, list []*engine.QueueFigures) {
			w.Array(2)
			w.BulkString(next)
			writeEach(w, len(list), func(i int) *fields { return figuresFields(list[i], now) })
		},
	}, in.Filled("queue", "QUEUE", "without it all queues are listed")
}

// selectFigures sets which queues are listed.
func selectFigures(in *input, req *engine.Figures) error {
	if in.Has("state") {
		states := make([]string, engine.KeyEmpty+1)
		for s := range states {
			states[s] = engine.KeyState(s).String()
		}
		at, err := oneOf(in, "state", states)
		if err != nil {
			return err
		}
		req.State = new(engine.KeyState(at))
	}
	if in.Has("trouble") {
		words := make([]string, engine.Troubles, engine.Troubles+1)
		for t := range words {
			words[t] = engine.Trouble(t).String()
		}
		at, err := oneOf(in, "trouble", append(words, anyTrouble))
		if err != nil {
			return err
		}
		if req.Troubles.Set(engine.Trouble(at), true); at == engine.Troubles {
			req.Troubles = engine.EveryTrouble
		}
	}
	return nil
}

// oneOf returns which of the words an option has.
func oneOf(in *input, name string, words []string) (int, error) {
	at := slices.Index(words, strings.ToLower(string(in.Bytes(name))))
	if at < 0 {
		return 0, command.Refuse("ERR", strings.ToUpper(name)+" must be one of "+strings.Join(words, ", ")+", not '"+command.Clip(in.Bytes(name))+"'")
	}
	return at, nil
}

// sortedBy returns the column of BY, -1 without.
func sortedBy(in *input) int {
	for c := range engine.Columns {
		if in.Has("by." + engine.Column(c).String()) {
			return c
		}
	}
	return -1
}

// sortFigures sets the order, and where the page begins.
func sortFigures(in *input, by int, req *engine.Figures) error {
	cursor := string(in.Bytes("cursor"))
	if by < 0 {
		var err error
		if in.Has("cursor") {
			req.Cursor, err = strconv.ParseUint(cursor, 10, 64)
		}
		switch {
		case in.Has("rev"):
			return command.Refuse("ERR", "REV is the other way round of BY, which is missing")
		case err != nil:
			return command.Refuse("ERR", "CURSOR must be that of the page before, or 0, not '"+command.Clip(in.Bytes("cursor"))+"'")
		}
		return nil
	}
	req.Sort = &engine.Sort{By: engine.Column(by), Reverse: in.Has("rev")}
	if in.Has("cursor") && cursor != "0" {
		place, ok := engine.ParseCursor(cursor)
		if !ok {
			return command.Refuse("ERR", "CURSOR must be that of the page before with the same BY, or 0, not '"+command.Clip(in.Bytes("cursor"))+"'")
		}
		req.Sort.After = &place
	}
	return nil
}

// answerTroubles answers the troubles of queues, in groups.
func answerTroubles(req engine.Figures) call {
	req.Groups = new(engine.TroubleGroups)
	var now time.Time
	return answerPage(func(tx *engine.Tx) (uint64, []int, error) {
		got, err := tx.Figures(&req)
		now = got.Now
		var found []int
		for t := range req.Groups {
			if req.Groups[t].Queues > 0 {
				found = append(found, t)
			}
		}
		return 0, found, err
	}, func(t *int) *fields { return troubleFields(*t, &req.Groups[*t], now) })
}

func troubleFields(trouble int, g *engine.TroubleGroup, now time.Time) *fields {
	f := newFields()
	if trouble < engine.Troubles {
		f.text("trouble", engine.Trouble(trouble).String())
	} else {
		f.text("trouble", anyTrouble)
	}
	f.number("queues", g.Queues)
	f.number("messages", g.Messages)
	since := time.Time{}
	if g.Since != 0 {
		since = time.Unix(0, g.Since)
	}
	f.age("oldest_ms", now, since)
	first := make(fields, 0, len(g.First))
	for _, q := range g.First {
		first.number(q.Queue, q.Messages)
	}
	f.group("first", first)
	return f
}
