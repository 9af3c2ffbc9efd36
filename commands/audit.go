package commands

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

// The acts are the administrative commands that have changed something. A command of the engine is kept in
// the write that has what it changes, by keptCall; one that the session executes is kept right after it,
// where this node does not lead by the leader. Of arguments an act has what the command is about, never values,
// which may be passwords; settings before and after are what the commands that show them show to every user.

func auditList() Spec {
	return Spec{
		Name: "FILA.AUDIT", Group: "fila", Since: "0.1.1", Complexity: "O(N) where N is COUNT", Returns: pageOfMaps,
		Summary: "Returns the last " + strconv.Itoa(engine.ActsMax) + " administrative commands that have changed something, the newest first, a page at a time: who, what, from where, and the setting before and after.",
		Reply: "An array: the next cursor, 0 at the end, and an array of maps: " + actFields(&engine.Act{}).names() + ". " +
			"object is what the command was about; before and after have the fields of a setting that differ, as name=value, of one that was created or deleted those that are not nil or 0; " +
			"they are nil where there was no setting or is none, and for commands without one. Commands that have left a setting as it was, and movements of budgets, which FILA.BUDGET HISTORY has, are not in it.",
		Flags: []string{"admin", "noscript"}, Quiet: true, // not "readonly": @read is no right to it
		Args: []Arg{
			{Name: "c", Type: Integer, Token: "CURSOR", Optional: true, Max: math.MaxInt64},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
		},
		Examples: []Example{
			{"FILA.AUDIT", "1) \"0\"\n2) (empty array)"},
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE ALTER orders MAXATTEMPTS 3", "OK"},
			{"FILA.AUDIT COUNT 1", "..."},
		},
		Room: func(_ *Session, in *input) int {
			return min(int(in.Integer("count", pageCount)), engine.ActsMax) * (sizeOf[engine.Act]() + 4*engine.ActNameMax + 2*engine.ActSettingMax)
		},
		Memory: "3,300 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			cursor, count := uint64(in.Integer("cursor", 0)), int(in.Integer("count", pageCount))
			return answerPage(func(tx *engine.Tx) (uint64, []engine.Act, error) {
				next, list := tx.Acts(cursor, count)
				return next, list, nil
			}, actFields), nil
		},
	}
}

func actFields(a *engine.Act) *fields {
	f := newFields()
	f.count("number", a.Number)
	f.at("at", a.At)
	f.text("user", a.User)
	f.text("addr", a.Addr)
	f.text("command", a.Command)
	f.optional("object", a.Object)
	f.optional("before", a.Before)
	f.optional("after", a.After)
	return f
}

// acting says how the act of a command is made.
type acting struct {
	words int // how many of the first arguments say what it is about
	// setting returns what reads the setting that the command changes: its fields, none if there is
	// no such setting. nil: there is nothing to compare.
	setting func(in *input) func(tx *engine.Tx) fields
	local   func(s *Session, in *input) fields // the same of a command that the session executes
	partly  bool                               // a change may be in what setting does not show
}

// acts returns how an act of a command is made; ok is false for a command that is none.
func acts(c *entry) (a acting, ok bool) {
	family, verb, _ := strings.Cut(c.Name, "|")
	switch {
	case !c.Audited || c.Name == "module|list" || c.Name == "fila.budget|credit" || c.Name == "fila.budget|charge":
		return a, false
	case family == "fila.queue" && verb == "apply": // its changes say more
		return a, true
	}
	switch family {
	case "fila.queue":
		return acting{words: 1, setting: queueSetting}, true
	case "fila.key":
		return acting{words: 2, setting: keySetting, partly: true}, true
	case "fila.throttle":
		return acting{words: 1, setting: throttleSetting}, true
	case "fila.cron":
		return acting{words: 1, setting: cronSetting, partly: true}, true
	case "fila.config":
		return acting{words: 1, setting: configSetting}, true
	case "fila.script":
		return acting{words: 2, setting: scriptSetting}, true
	case "fila.topic":
		return acting{words: 2, setting: bindingSetting, partly: true}, true
	case "fila.budget":
		return acting{words: 1, setting: budgetSetting}, true
	case "fila.purge":
		return acting{words: 3}, true
	case "acl":
		if verb == "setuser" {
			return acting{words: 1, setting: storedUser, local: localUser, partly: true}, true // its passwords are not shown
		}
		return acting{words: math.MaxInt}, true
	case "config":
		if verb == "set" {
			return acting{words: 1, local: tunableSettings}, true
		}
	case "client":
		return acting{words: math.MaxInt}, true
	}
	return acting{words: 1}, true
}

// newAct begins the act of a scanned command.
func (s *Session) newAct(c *entry, words int) engine.Act {
	args := s.in.Args[:min(words, len(s.in.Args))]
	return engine.Act{
		User: s.userName(), Addr: s.conn.RemoteAddr().String(), Command: c.Display, Object: strings.ToValidUTF8(string(bytes.Join(args, []byte(" "))), "?"),
	}
}

// parse parses a scanned command into its call. An administrative command is kept as an act when it is applied.
func (s *Session) parse(c *entry) (call, error) {
	parsed, err := c.Spec.Parse(s, &s.in)
	if err != nil || !c.Audited {
		return parsed, err
	}
	how, ok := acts(c)
	if !ok {
		return parsed, nil
	}
	r := &keptCall{call: parsed, act: s.newAct(c, how.words), partly: how.partly}
	if how.setting != nil {
		r.setting = how.setting(&s.in)
	}
	return r, nil
}

// keptCall is a call that is kept as an act.
type keptCall struct {
	call

	act     engine.Act
	setting func(tx *engine.Tx) fields // nil: there is none
	partly  bool
	began   bool   // before is as it was when the call began
	before  fields // none: there was no such setting
}

// Prepare implements preparer.
func (c *keptCall) Prepare(s *Session) error {
	if p, ok := c.call.(preparer); ok {
		return p.Prepare(s)
	}
	return nil
}

// Bytes implements weigher.
func (c *keptCall) Bytes() int {
	if w, ok := c.call.(weigher); ok {
		return w.Bytes()
	}
	return 0
}

// Preflight implements engine.Preflighter.
func (c *keptCall) Preflight(tx *engine.Tx) error {
	if p, ok := c.call.(engine.Preflighter); ok {
		return p.Preflight(tx)
	}
	return nil
}

// Apply implements engine.Call: an act is in the write of the last change of its call, which may take several turns.
func (c *keptCall) Apply(tx *engine.Tx) error {
	if c.setting != nil && !c.began {
		c.before, c.began = c.setting(tx), true
	}
	if err := c.call.Apply(tx); err != nil {
		return err
	}
	same := false
	switch apply, is := c.call.(*queueApplyCall); {
	case is:
		c.act.After = apply.changed()
		same = c.act.After == ""
	case c.setting != nil:
		c.act.Before, c.act.After = differing(c.before, c.setting(tx))
		same = c.act.Before == c.act.After && !c.partly
	}
	if same {
		return nil
	}
	return tx.RecordAct(c.act)
}

// changed describes in a line what FILA.QUEUE APPLY has changed.
func (c *queueApplyCall) changed() string {
	if c.set.DryRun {
		return ""
	}
	list := make([]string, 0, len(c.changes))
	for i := range c.changes {
		ch := &c.changes[i]
		words := []string{ch.Action}
		if ch.Topic != "" {
			words = append(words, ch.Topic)
		}
		words = append(words, ch.Queue+ch.Throttle)
		if ch.Action == engine.QueueAlter || ch.Throttle != "" {
			for _, d := range ch.Fields {
				words = append(words, d.Name+"="+quoted(d.From)+"->"+quoted(d.To))
			}
		}
		list = append(list, strings.Join(words, " "))
	}
	return strings.Join(list, "; ")
}

// act executes a command on the connection, and keeps it as an act if it is one.
func (s *Session) act(c *entry, w *resp.Writer) error {
	how, ok := acting{}, false
	if c.Audited {
		how, ok = acts(c)
	}
	if !ok {
		return c.Spec.Local(s, &s.in, w)
	}
	a := s.newAct(c, how.words)
	var before fields
	if how.local != nil {
		before = how.local(s, &s.in)
	}
	if err := c.Spec.Local(s, &s.in, w); err != nil {
		return err
	}
	if how.local != nil {
		if a.Before, a.After = differing(before, how.local(s, &s.in)); a.Before == a.After && !how.partly {
			return nil
		}
	}
	s.handler.keepAct(a)
	return nil
}

// keepAct has the leader keep an act, which may be lost.
func (h *Handler) keepAct(a engine.Act) {
	c := h.nodes.cluster
	if c == nil {
		h.submitUndo(actCall(a))
		return
	}
	if e, _ := c.Enter(); e != nil {
		e.Submit([]*engine.Task{{Call: actCall(a)}})
		c.Exit()
		return
	}
	h.tell(commandOf(relayAct, a.User, a.Addr, a.Command, a.Object, a.Before, a.After))
}

// actOf returns the act in the words of relayAct.
func actOf(words [][]byte) actCall {
	a := actCall{}
	for i, to := range []*string{&a.User, &a.Addr, &a.Command, &a.Object, &a.Before, &a.After} {
		*to = string(words[i])
	}
	return a
}

// actCall keeps an act.
type actCall engine.Act

// Apply implements engine.Call.
func (a actCall) Apply(tx *engine.Tx) error { return tx.RecordAct(engine.Act(a)) }

// differing returns two states of a setting as texts: the fields that differ, or if one of them has none, those of the
// other that say something.
func differing(before, after fields) (was, is string) {
	if len(before) == 0 || len(after) == 0 {
		return before.line(func(v *field) bool { return v.says() }), after.line(func(v *field) bool { return v.says() })
	}
	return before.line(func(v *field) bool { return after.value(v.name) != v.shown() }), after.line(func(v *field) bool { return before.value(v.name) != v.shown() })
}

// line returns those fields of a map that keep accepts, as name=value.
func (f fields) line(keep func(*field) bool) string {
	var words []string
	for i := range f {
		if keep(&f[i]) {
			words = append(words, f[i].name+"="+f[i].shown())
		}
	}
	return strings.Join(words, " ")
}

// value returns the value of a field as text, "" if the map has no such field.
func (f fields) value(name string) string {
	for i := range f {
		if f[i].name == name {
			return f[i].shown()
		}
	}
	return ""
}

// says reports whether the field is not nil, 0 or empty.
func (v *field) says() bool {
	switch text := v.shown(); text {
	case "nil", "0", `""`:
		return false
	default:
		return true
	}
}

// shown returns the value of a field as text; of what is no number, text or list of texts nothing.
func (v *field) shown() string {
	switch v.kind {
	case fieldNumber:
		return strconv.FormatInt(v.num, 10)
	case fieldText:
		return quoted(v.text)
	case fieldMore:
		if list, ok := v.more.([]string); ok {
			return quoted(strings.Join(list, ","))
		}
		return `""`
	default:
		return "nil"
	}
}

// quoted returns a text in quotes, unless it is one word without them.
func quoted(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f || r == 0xfffd }) {
		return strconv.Quote(text)
	}
	return text
}

// only returns the fields of some names.
func (f fields) only(names ...string) fields {
	return slices.DeleteFunc(slices.Clone(f), func(v field) bool { return !slices.Contains(names, v.name) })
}

// without removes fields that no command sets, such as counters.
func (f fields) without(names ...string) fields {
	return slices.DeleteFunc(slices.Clone(f), func(v field) bool { return slices.Contains(names, v.name) })
}

func queueSetting(in *input) func(tx *engine.Tx) fields {
	name := in.Text("name")
	return func(tx *engine.Tx) (f fields) {
		q, err := tx.QueueInfo(name)
		if err != nil {
			return nil
		}
		f.settings(&q.Values, 0, math.MaxInt)
		f.optional("dlq", q.DLQ)
		f.flag("is_dlq", q.DeadLetter)
		f.flag("paused_in", q.PausedIn)
		f.flag("paused_out", q.PausedOut)
		return f
	}
}

func keySetting(in *input) func(tx *engine.Tx) fields {
	queue, key := in.Text("queue"), in.Text("key")
	return func(tx *engine.Tx) fields {
		k, err := tx.Key(queue, key)
		if err != nil {
			return nil
		}
		return keyFields(&k, tx.Now()).only("weight", "paused", "max_depth")
	}
}

func throttleSetting(in *input) func(tx *engine.Tx) fields {
	name := in.Text("key")
	return func(tx *engine.Tx) fields {
		t, found := tx.Throttle(name)
		if !found {
			return nil
		}
		return throttleFields(&t).without("key", "tokens", "held", "waiting", "passed", "refused", "waited_ms", "next_at", "limit", "cuts", "instances")
	}
}

func budgetSetting(in *input) func(tx *engine.Tx) fields {
	name := in.Text("name")
	return func(tx *engine.Tx) fields {
		b, found := tx.Budget(name)
		if !found {
			return nil
		}
		return budgetFields(&b).without("name", "balance", "reserved", "available", "credited", "spent", "next_at", "waiting", "created_at", "refill_error")
	}
}

func cronSetting(in *input) func(tx *engine.Tx) fields {
	name := string(in.Args[0])
	return func(tx *engine.Tx) fields {
		i, found := tx.Cron(name)
		if !found {
			return nil
		}
		return showCronRest(cronFields(&i), &i).without("name", "next_at", "last_at", "fired", "missed", "last_error", "error_at", "set_at", "skipped")
	}
}

// configSetting shows the values of FILA.CONFIG that a command names: of SET pairs, of DEL keys.
func configSetting(in *input) func(tx *engine.Tx) fields {
	step := 1
	if in.Cmd.Name == "fila.config|set" {
		step = 2
	}
	var names []string
	for i := 0; i < len(in.Args); i += step {
		names = append(names, string(in.Args[i]))
	}
	return func(tx *engine.Tx) (f fields) {
		for _, name := range names {
			if value, found := tx.Config(name); found {
				f.text(name, value)
			}
		}
		return f
	}
}

func scriptSetting(in *input) func(tx *engine.Tx) fields {
	queue, kind := in.Text("queue"), hookKind(in)
	return func(tx *engine.Tx) (f fields) {
		list, err := tx.Scripts(queue)
		if err != nil {
			return nil
		}
		for _, s := range list {
			if s.Kind == kind {
				f.text("version", s.Hook.Version())
			}
		}
		return f
	}
}

func bindingSetting(in *input) func(tx *engine.Tx) fields {
	topic, queue := in.Text("topic"), in.Text("queue")
	return func(tx *engine.Tx) (f fields) {
		t, _ := tx.Topic(topic)
		for i := range t.Bindings {
			b := &t.Bindings[i]
			if b.Queue != queue {
				continue
			}
			f.flag("bound", true)
			for _, c := range b.Conditions {
				f.text("header:"+c.Header, c.Pattern)
			}
		}
		return f
	}
}

// userLine returns the rights of a user in one text, without its passwords.
func userLine(line string) (f fields) {
	if line == "" {
		return nil
	}
	words := slices.DeleteFunc(strings.Fields(line), func(word string) bool { return strings.ContainsAny(word[:1], "#><!") })
	f.text("rights", strings.Join(words[min(2, len(words)):], " ")) // behind "user" and its name
	return f
}

func storedUser(in *input) func(tx *engine.Tx) fields {
	name := string(in.Bytes("username"))
	return func(tx *engine.Tx) fields { return userLine(tx.User(name)) }
}

func localUser(s *Session, in *input) fields {
	return userLine(s.handler.users.Lines()[string(in.Bytes("username"))])
}

// tunableSettings shows the settings that a CONFIG SET names.
func tunableSettings(s *Session, in *input) (f fields) {
	all, names := s.handler.settings(), map[string]bool{}
	for i, word := range in.List("data") {
		if i%2 == 0 {
			names[strings.ToLower(string(word))] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if value, known := all[name]; known {
			f.text(name, value)
		}
	}
	return f
}
