package commands

import (
	"cmp"
	"slices"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

func cron() Spec {
	return container("FILA.CRON", "fila", "0.1.0", "the commands that manage recurring messages", cronDel(), cronGet(), cronList(), cronPause(), cronResume(), cronRun(), cronSet())
}

func cronSet() Spec {
	return Spec{
		Name: "SET", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of recurring messages, at most limits.crons", Returns: "status",
		Summary: "Enqueues a message at each tick of a cron expression. Replaces the recurring message of this name. " +
			"The expression has five fields (minute hour day month weekday), six with seconds first, or is @yearly, @monthly, @weekly, @daily, @hourly, @every 90s; in the time zone TZ (UTC). " +
			"Each tick enqueues exactly one message, also across restarts; with UNIQUE, none while the queue has one with this id, such as that of an earlier tick, which it replaces with REPLACE if that waits. CATCHUP selects which ticks that were missed by more than ten seconds are made up for: " +
			"NONE, the LAST (default), or ALL. Setting the same expression and zone again does not change its ticks; a pause goes on. Each BUDGET has to exist. With TOPIC the second argument is the name of a topic, to which each tick publishes, see FILA.PUBLISH. See docs/how-to/cron.md.",
		Flags: []string{"write", "denyoom"}, Access: Produce, ACL: []string{"admin"},
		Args: slices.Concat([]Arg{
			{Name: "cron", Type: String},
			{Name: "queue", Type: Key},
			{Name: "expression", Type: String},
			{Name: "payload", Type: String},
			{Name: "zone", Type: String, Token: "TZ", Optional: true},
			{Name: "rule", Type: OneOf, Token: "CATCHUP", Optional: true, Args: []Arg{
				{Name: "none", Type: PureToken, Token: "NONE"},
				{Name: "last", Type: PureToken, Token: "LAST"},
				{Name: "all", Type: PureToken, Token: "ALL"},
			}},
		}, messageArgs(Arg{Name: "ms", Type: Integer, Token: "DELAY", Optional: true, Max: millisMax}), []Arg{
			{Name: "topic", Type: PureToken, Token: "TOPIC", Optional: true},
		}),
		Examples: []Example{
			{"FILA.QUEUE CREATE reports", "OK"},
			{`FILA.CRON SET morning reports "30 6 * * mon-fri" daily TZ Europe/Berlin`, "OK"},
			{`FILA.CRON SET sync reports "@every 5m" poll CATCHUP NONE KEY tenant-1 HEADER kind sync`, "OK"},
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.CRON SET digest reports @daily digest BUDGET acme CHARGE 800", "OK"},
			{"FILA.CRON SET tick time.hour @hourly now TOPIC", "OK"},
			{`FILA.CRON SET reindex reports "@every 5m" all UNIQUE reindex`, "OK"},
		},
		Parse: parseCron,
	}
}

func parseCron(s *Session, in *input) (call, error) {
	if err := in.Filled("tz", "TZ", "FILA.CRON SET without TZ goes by UTC"); err != nil {
		return nil, err
	}
	c := &cronSetCall{account: s.login.account.Load(), cron: engine.Cron{Name: in.Text("cron"), Expression: in.Text("expression"), Zone: in.Text("tz")}}
	c.cron.Message.Queue = in.Text("queue")
	if err := cmp.Or(parseMessage(s, in, &c.cron.Message), parseLast(in, &c.cron.Message)); err != nil {
		return nil, err
	}
	c.cron.Topic = in.Has("topic")
	switch {
	case in.Has("catchup.none"):
		c.cron.CatchUp = engine.CatchUpNone
	case in.Has("catchup.all"):
		c.cron.CatchUp = engine.CatchUpAll
	default:
		c.cron.CatchUp = engine.CatchUpLast
	}
	c.size = in.Size()
	return c, nil
}

type cronSetCall struct {
	account *acl.Account
	cron    engine.Cron
	size    int
}

// Prepare parses the expression and encodes the message on the connection.
func (c *cronSetCall) Prepare(s *Session) error { return s.engine().PrepareCron(&c.cron) }

// Bytes implements weigher.
func (c *cronSetCall) Bytes() int { return c.size }

// Apply implements engine.Call.
func (c *cronSetCall) Apply(tx *engine.Tx) error {
	if err := mayChangeCron(tx, c.account, c.cron.Name); err != nil {
		return err
	}
	return tx.SetCron(&c.cron)
}

// Render writes OK.
func (*cronSetCall) Render(_ *Handler, w *resp.Writer) error {
	w.OK()
	return nil
}

// mayChangeCron checks the right to produce to the queue of the existing recurring message of this
// name. Only the engine knows which queue that is.
func mayChangeCron(tx *engine.Tx, a *acl.Account, name string) error {
	if old, found := tx.Cron(name); found && !a.May(acl.Produce, old.Queue) {
		return errKeys()
	}
	return nil
}

func cronDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of recurring messages, at most limits.crons", Returns: "integer",
		Summary: "Deletes a recurring message; messages that it has enqueued stay. Returns 1, or 0 if there was none.",
		Flags:   []string{"write", "fast"}, ACL: []string{"admin"},
		Args: []Arg{{Name: "name", Type: String}},
		Examples: []Example{
			{"FILA.CRON DEL morning", "(integer) 0"},
		},
		Parse: func(s *Session, in *input) (call, error) {
			name, account := in.Text("name"), s.login.account.Load()
			return answerBool(func(tx *engine.Tx) (bool, error) {
				if err := mayChangeCron(tx, account, name); err != nil {
					return false, err
				}
				return tx.DeleteCron(name)
			}), nil
		},
	}
}

func cronGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "map or nil",
		Summary: "Returns a recurring message, or nil if there is none of that name.",
		Flags:   []string{"readonly", "fast"},
		Reply: "A map: " + cronFields(&engine.CronInfo{}).names() + " upcoming " + showCronRest(&fields{}, &engine.CronInfo{}).names() + ". key is nil if none was given; next_at is the next tick; last_at the newest tick that has enqueued a message; " +
			"fired counts the ticks that have, missed those that were late or refused, skipped those that found a message with their UNIQUE id, and did not replace it; last_error and error_at describe the newest failed attempt; charge is nil if none was given; topic is 1 if queue is the name of a topic; until_lease is 1 with UNTIL LEASE, replace with REPLACE, and max_delay_ms 0 without MAXDELAY; upcoming are the next five ticks, next_at is the first of them; paused_at is since when it is paused, and then nothing is next. " +
			"With CONTENT, for which the user needs the right to consume, the last fields are what each tick enqueues: " + showCronContent(&fields{}, &engine.CronContent{}).names() + "; weight and cost are 0 if none was given. That is refused in a transaction.",
		Args: []Arg{{Name: "name", Type: String}, {Name: "content", Type: PureToken, Token: "CONTENT", Optional: true}},
		Examples: []Example{
			{"FILA.CRON GET morning", "(nil)"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{`FILA.CRON SET morning reports "30 6 * * mon-fri" daily TZ Europe/Berlin`, "OK"},
			{"FILA.CRON GET morning", "..."},
			{"FILA.CRON GET morning CONTENT", "..."},
		},
		Room: func(s *Session, in *input) int {
			if in.Has("content") {
				return message(s, in) + 3*smallRoom
			}
			return 3 * smallRoom
		},
		Memory: "12 KiB, with CONTENT in addition one message, read off-loop",
		Parse: func(_ *Session, in *input) (call, error) {
			c := &cronGetCall{name: in.Text("name"), user: in.User}
			if in.Has("content") {
				c.content = &engine.CronContent{Name: c.name}
			}
			return c, nil
		},
	}
}

// cronGetCall shows a recurring message, with content its message, too.
type cronGetCall struct {
	name    string
	user    *acl.User
	content *engine.CronContent
	info    *engine.CronInfo
}

// Apply implements engine.Call.
func (c *cronGetCall) Apply(tx *engine.Tx) error {
	info, found := tx.Cron(c.name)
	switch {
	case !found:
		return nil
	case !c.user.May(acl.Look, info.Queue) || c.content != nil && !c.user.May(acl.Consume, info.Queue):
		return errKeys()
	}
	if c.content != nil {
		if err := tx.CronContent(c.content); err != nil {
			return err
		}
	}
	c.info = &info
	return nil
}

// Render writes a map, or nil.
func (c *cronGetCall) Render(_ *Handler, w *resp.Writer) error {
	if c.info == nil {
		w.Null()
		return nil
	}
	f := cronFields(c.info)
	f.times("upcoming", c.info.Upcoming(upcomingTicks))
	showCronRest(f, c.info)
	if c.content != nil {
		showCronContent(f, c.content)
	}
	f.write(w)
	return nil
}

func showCronContent(f *fields, m *engine.CronContent) *fields {
	f.attributes(&m.Meta, "weight", "cost", "throttle")
	headers := make(fields, 0, len(m.Headers))
	for _, h := range m.Headers {
		headers.blob(string(h.Name), h.Value)
	}
	f.group("headers", headers)
	f.blob("payload", m.Payload)
	return f
}

// upcomingTicks is how many ticks FILA.CRON GET shows.
const upcomingTicks = 5

func cronFields(i *engine.CronInfo) *fields {
	zone := i.Zone
	if zone == "" {
		zone = "UTC"
	}
	var f fields
	f.text("name", i.Name)
	f.text("queue", i.Queue)
	f.text("expression", i.Expression)
	f.text("tz", zone)
	f.text("catchup", i.CatchUp.String())
	f.optional("key", i.Key)
	f.at("next_at", i.NextAt)
	f.at("last_at", i.LastAt)
	f.count("fired", i.Fired)
	f.count("missed", i.Missed)
	f.optional("last_error", i.LastError)
	f.at("error_at", i.ErrorAt)
	if i.Priority != nil {
		f.number("priority", int64(*i.Priority))
	} else {
		f.optional("priority", "")
	}
	f.millis("delay_ms", i.Delay)
	f.millis("ttl_ms", i.TTL)
	f.at("set_at", i.SetAt)
	f.attributes(&i.Meta, "budgets")
	f.amount("charge", i.Charge)
	return &f
}

// showCronRest adds the fields that came later, behind all others.
func showCronRest(f *fields, i *engine.CronInfo) *fields {
	f.flag("topic", i.Topic)
	f.attributes(&i.Meta, "unique")
	f.count("skipped", i.Skipped)
	f.attributes(&i.Meta, "max_attempts", "backoff_ms", "max_backoff_ms", "until_lease")
	f.flag("replace", i.Replace)
	f.millis("max_delay_ms", i.MaxDelay)
	f.at("paused_at", i.PausedAt)
	f.attributes(&i.Meta, later)
	return f
}

func cronList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT", Returns: pageOfMaps,
		Summary: "Returns the recurring messages of queues that the user has a right to, a page at a time.",
		Flags:   []string{"readonly"},
		Reply:   pageReply + "A recurring message is a map as in FILA.CRON GET, without upcoming.",
		Args:    append([]Arg{}, pageOptions()...),
		Examples: []Example{
			{"FILA.CRON LIST", "1) \"0\"\n2) (empty array)"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{`FILA.CRON SET sync reports "@every 5m" poll`, "OK"},
			{"FILA.CRON LIST MATCH s* COUNT 100", "..."},
		},
		Room:   pageOf[engine.CronInfo](3+engine.BudgetsMax, tinyRoom),
		Memory: "4,500 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			p, user := parsePage(in), in.User
			return answerPage(func(tx *engine.Tx) (uint64, []engine.CronInfo, error) {
				next, list := tx.Crons(p.cursor, p.count, p.match)
				return next, slices.DeleteFunc(list, func(i engine.CronInfo) bool { return !user.May(acl.Look, i.Queue) }), nil
			}, func(i *engine.CronInfo) *fields {
				f := cronFields(i)
				showCronRest(f, i)
				return f
			}), nil
		},
	}
}

func cronPause() Spec {
	return cronPausing("PAUSE", true, "Stops the ticks of a recurring message, until FILA.CRON RESUME. FILA.CRON RUN and SET work meanwhile, and SET does not end the pause.")
}

func cronResume() Spec {
	return cronPausing("RESUME", false, "Lets a recurring message tick again. Ticks that fell into its pause enqueue nothing, whatever its CATCHUP, and are not missed.")
}

func cronPausing(name string, paused bool, summary string) Spec {
	return Spec{
		Name: name, Group: "fila", Since: "0.1.1", Complexity: "O(log(N)) where N is the number of recurring messages, at most limits.crons", Returns: "integer",
		Summary: summary + " Returns 1, or 0 if there is no recurring message of that name.",
		Flags:   []string{"write", "fast"}, ACL: []string{"admin"},
		Args: []Arg{{Name: "name", Type: String}},
		Examples: []Example{
			{"FILA.CRON " + name + " morning", "(integer) 0"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{`FILA.CRON SET morning reports "30 6 * * mon-fri" daily`, "OK"},
			{"FILA.CRON " + name + " morning", "(integer) 1"},
		},
		Parse: func(s *Session, in *input) (call, error) {
			name, account := in.Text("name"), s.login.account.Load()
			return answerBool(func(tx *engine.Tx) (bool, error) {
				if err := mayChangeCron(tx, account, name); err != nil {
					return false, err
				}
				return tx.PauseCron(name, paused)
			}), nil
		},
	}
}

func cronRun() Spec {
	return Spec{
		Name: "RUN", Group: "fila", Since: "0.1.0", Complexity: "O(1); off-loop O(N) where N is the size of the message", Returns: "string or array of array",
		Summary: "Enqueues the message of a recurring message now, in addition to its ticks, which stay as they are, and returns the id; of one with TOPIC, what FILA.PUBLISH returns. " +
			"Its headers are those of a tick, and the ON_ENQUEUE hook and the limits of the queue apply.",
		Flags: []string{"write", "denyoom", "no_multi"}, ACL: []string{"admin"},
		Args: []Arg{{Name: "name", Type: String}},
		Examples: []Example{
			{"FILA.CRON RUN morning", "(error) INVALID not allowed: there is no recurring message \"morning\", FILA.CRON LIST shows those that are set"},
			{"FILA.QUEUE CREATE reports", "OK"},
			{`FILA.CRON SET morning reports "30 6 * * mon-fri" daily TZ Europe/Berlin`, "OK"},
			{"FILA.CRON RUN morning", `"<id>"`},
		},
		Parse: func(s *Session, in *input) (call, error) {
			return &cronRunCall{req: engine.CronRun{Name: in.Text("name")}, account: s.login.account.Load()}, nil
		},
	}
}

type cronRunCall struct {
	req     engine.CronRun
	account *acl.Account
	topic   bool
	list    []engine.Published
}

// Apply implements engine.Call.
func (c *cronRunCall) Apply(tx *engine.Tx) (err error) {
	if err := mayChangeCron(tx, c.account, c.req.Name); err != nil {
		return err
	}
	if info, found := tx.Cron(c.req.Name); found {
		c.topic = info.Topic
	}
	c.list, err = tx.RunCron(&c.req)
	return err
}

// Render writes the id, or the queues and ids.
func (c *cronRunCall) Render(_ *Handler, w *resp.Writer) error {
	if c.topic {
		writePublished(w, c.list)
		return nil
	}
	w.BulkString(c.list[0].ID.String())
	return nil
}
