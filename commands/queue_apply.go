package commands

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/resp"

	"github.com/faisca/fila/internal/hook"
)

func queueApply() Spec {
	return Spec{
		Name: "APPLY", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues and bindings, named or existing", Returns: "array of map",
		Summary: "Creates and alters queues, and binds them to topics, to match a definition, in one atomic write. With PRUNE it deletes queues that are not in the definition, " +
			"but none that holds messages unless FORCE is given, and ends the bindings that are not in it. DRYRUN only says what would be done. It is what `fila queues apply` sends, see docs/how-to/queues.md. " +
			"The definition is JSON: an object with queues, an array of objects with name and the settings in the words of FILA.QUEUE INFO; " +
			"dlq is a name or false; on_enqueue and on_failure are sources of scripts. A setting that is not there gets its default, a script stays. " +
			"topics is an array of bindings, objects with name, queue and headers: an object with a pattern, or an array of patterns, for each header.",
		Reply: "An array of maps: " + changeFields(&engine.QueueChange{}).names() + ". action is create, alter, delete, bind, rebind or unbind; fields an array of maps: name from to. " +
			"Of a binding, topic is its topic, and the fields are headers with their patterns in quotes.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Args: []Arg{
			{Name: "definition", Type: String},
			{Name: "prune", Type: PureToken, Token: "PRUNE", Optional: true},
			{Name: "force", Type: PureToken, Token: "FORCE", Optional: true},
			{Name: "dryrun", Type: PureToken, Token: "DRYRUN", Optional: true},
		},
		Examples: []Example{
			{`FILA.QUEUE APPLY "{\"queues\":[{\"name\":\"orders\",\"max_attempts\":3,\"dlq\":false}]}" DRYRUN`, "..."},
			{`FILA.QUEUE APPLY "{\"queues\":[{\"name\":\"orders\",\"colour\":\"red\"}]}"`, `(error) INVALID definition: unknown field "colour"`},
		},
		Room:   always(aloneRoom),
		Memory: "known only when it is executed, which is when no reply precedes it",
		Parse:  parseQueueApply,
	}
}

func parseQueueApply(s *Session, in *input) (call, error) {
	c := &queueApplyCall{definition: in.Bytes("definition")}
	var err error
	if c.set, c.sources, err = parseDefinition(c.definition); err != nil {
		return nil, err
	}
	c.set.User = s.userName()
	c.set.Prune, c.set.Force, c.set.DryRun = in.Has("prune"), in.Has("force"), in.Has("dryrun")
	if c.set.Prune && !in.User.Unrestricted() {
		return nil, command.Refuse("NOPERM", "PRUNE deletes any queue, which takes a user without restrictions")
	}
	if in.User == nil {
		return c, nil
	}
	for i := range c.set.Queues {
		q := &c.set.Queues[i]
		names := []string{q.Name, q.Name + engine.DLQSuffix}
		if q.Options.DLQ != nil {
			names[1] = *q.Options.DLQ
		}
		for _, name := range names {
			if !in.User.May(acl.Manage, name) {
				return nil, command.Refuse("NOPERM", fmt.Sprintf("no permissions to change queue %.255q", name))
			}
		}
	}
	for i := range c.set.Bindings {
		b := &c.set.Bindings[i]
		if !in.User.May(acl.Manage, b.Topic) || !in.User.May(acl.Produce, b.Queue) {
			return nil, command.Refuse("NOPERM", fmt.Sprintf("no permissions to bind queue %.255q to topic %.255q", b.Queue, b.Topic))
		}
	}
	return c, nil
}

type queueApplyCall struct {
	definition []byte
	set        engine.QueueSet
	sources    [][2]string // of the hooks of each queue, by kind
	changes    []engine.QueueChange
}

// Prepare compiles the scripts on the connection.
func (c *queueApplyCall) Prepare(s *Session) error {
	return compileQueues(&c.set, c.sources, func(within hook.Bounds, kind hook.Kind, source string) (hook.Hook, error) {
		return s.compile(hook.Caller{Queue: within}, kind, source)
	})
}

// Bytes implements weigher.
func (c *queueApplyCall) Bytes() int { return len(c.definition) }

// Apply implements engine.Call.
func (c *queueApplyCall) Apply(tx *engine.Tx) (err error) {
	c.changes, err = tx.ApplyQueues(&c.set)
	return err
}

// Render writes the changes.
func (c *queueApplyCall) Render(_ *Handler, w *resp.Writer) error {
	writeEach(w, len(c.changes), func(i int) *fields { return changeFields(&c.changes[i]) })
	return nil
}

func changeFields(c *engine.QueueChange) *fields {
	list := make([]fields, len(c.Fields))
	for i, d := range c.Fields {
		list[i].text("name", d.Name)
		list[i].text("from", d.From)
		list[i].text("to", d.To)
	}
	var f fields
	f.text("action", c.Action)
	f.text("queue", c.Queue)
	f.groups("fields", list)
	f.number("messages", c.Messages)
	f.text("topic", c.Topic)
	return &f
}

// Queues returns the set that a definition in the format of FILA.QUEUE APPLY describes, without
// pruning. It compiles the scripts.
func Queues(definition []byte, e Engine) (engine.QueueSet, error) {
	set, sources, err := parseDefinition(definition)
	if err != nil {
		return set, err
	}
	err = compileQueues(&set, sources, func(within hook.Bounds, kind hook.Kind, source string) (hook.Hook, error) {
		return e.CompileScript(hook.Caller{Queue: within}, kind, source)
	})
	return set, err
}

func compileQueues(set *engine.QueueSet, sources [][2]string, compile func(hook.Bounds, hook.Kind, string) (hook.Hook, error)) error {
	for i := range set.Queues {
		for kind, source := range sources[i] {
			if source == "" {
				continue
			}
			h, err := compile(set.Queues[i].Options.HookBounds(), hook.Kind(kind), source)
			if err != nil {
				return fmt.Errorf("queue %q: %w", set.Queues[i].Name, err)
			}
			set.Queues[i].Hooks[kind] = h
		}
	}
	return nil
}

// queueDefinition is a queue in JSON.
type queueDefinition struct {
	Name      string `json:"name"`
	DLQ       any    `json:"dlq"`
	OnEnqueue string `json:"on_enqueue"`
	OnFailure string `json:"on_failure"`

	settings [len(queueset.Values{})]*int64 // nil if absent, since 0 is a value
}

// bindingDefinition is the binding of a queue to a topic in JSON.
type bindingDefinition struct {
	Name    string         `json:"name"`
	Queue   string         `json:"queue"`
	Headers map[string]any `json:"headers"` // a pattern, or an array of them
}

// binding returns the binding, with its conditions in the order of headers.
func (d *bindingDefinition) binding() (engine.TopicBinding, error) {
	b := engine.TopicBinding{Topic: d.Name, Binding: engine.Binding{Queue: d.Queue}}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		patterns, ok := d.Headers[name].([]any)
		if !ok {
			patterns = []any{d.Headers[name]}
		}
		for _, p := range patterns {
			pattern, ok := p.(string)
			if !ok {
				return b, fmt.Errorf("header %.255q must be a pattern, or an array of patterns", name)
			}
			b.Conditions = append(b.Conditions, engine.Condition{Header: name, Pattern: pattern})
		}
	}
	return b, nil
}

// definitionType is a definition: an array of queueDefinition with a field for each setting, made
// from the table of settings, and one of bindingDefinition. So the JSON decoder knows all names: it refuses unknown fields and
// names a field with a wrong value.
func definitionType() reflect.Type {
	var fields []reflect.StructField
	for f := range reflect.TypeFor[queueDefinition]().Fields() {
		if f.IsExported() {
			fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		}
	}
	for _, row := range queueset.All() {
		kind := reflect.TypeFor[*int64]()
		if row.Unit == queueset.Switch {
			kind = reflect.TypeFor[*bool]()
		}
		fields = append(fields, reflect.StructField{
			Name: row.Token, Type: kind, Tag: reflect.StructTag(fmt.Sprintf("json:%q", row.Name)),
		})
	}
	queues := reflect.StructField{Name: "Queues", Type: reflect.SliceOf(reflect.StructOf(fields)), Tag: `json:"queues"`}
	topics := reflect.StructField{Name: "Topics", Type: reflect.TypeFor[[]bindingDefinition](), Tag: `json:"topics"`}
	return reflect.StructOf([]reflect.StructField{queues, topics})
}

// readDefinition returns the definition of a queue from an element of the array in definitionType.
func readDefinition(v reflect.Value) (q queueDefinition) {
	to := reflect.ValueOf(&q).Elem()
	for f := range to.Type().Fields() {
		if f.IsExported() {
			to.FieldByIndex(f.Index).Set(v.FieldByName(f.Name))
		}
	}
	for s, row := range queueset.All() {
		if on, ok := reflect.TypeAssert[*bool](v.FieldByName(row.Token)); ok {
			q.settings[s] = switched(on)
			continue
		}
		q.settings[s], _ = reflect.TypeAssert[*int64](v.FieldByName(row.Token))
	}
	return q
}

// switched returns a switch as a number; nil if it is absent.
func switched(on *bool) *int64 {
	if on == nil {
		return nil
	}
	var n int64
	if *on {
		n = 1
	}
	return &n
}

func parseDefinition(definition []byte) (set engine.QueueSet, sources [][2]string, err error) {
	all := reflect.New(definitionType())
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(definition, []byte("\ufeff")))) // of a file as some editors write it
	d.DisallowUnknownFields()
	if err := d.Decode(all.Interface()); err != nil {
		return set, nil, command.Refuse("INVALID", "definition: "+definitionError(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return set, nil, command.Refuse("INVALID", "definition: something follows its end")
	}
	queues := all.Elem().Field(0)
	for i := range queues.Len() {
		q := readDefinition(queues.Index(i))
		o, err := q.options()
		if err != nil {
			return set, nil, command.Refuse("INVALID", fmt.Sprintf("queue %.255q: %s", q.Name, err))
		}
		set.Queues = append(set.Queues, engine.QueueSpec{Name: q.Name, Options: o})
		sources = append(sources, [2]string{hook.OnEnqueue: q.OnEnqueue, hook.OnFailure: q.OnFailure})
	}
	bindings, _ := reflect.TypeAssert[[]bindingDefinition](all.Elem().Field(1))
	for i := range bindings {
		b, err := bindings[i].binding()
		if err != nil {
			return set, nil, command.Refuse("INVALID", fmt.Sprintf("topic %.255q, queue %.255q: %s", b.Topic, b.Queue, err))
		}
		set.Bindings = append(set.Bindings, b)
	}
	return set, sources, nil
}

// definitionError describes what is wrong with a definition in terms of JSON instead of Go types.
func definitionError(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := map[reflect.Kind]string{reflect.Int64: "a whole number", reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array"}[wrong.Type.Kind()]
		return fmt.Sprintf("%s must be %s, not %.64s", cmp.Or(wrong.Field, "it"), cmp.Or(want, "an object"), strings.TrimPrefix(wrong.Value, "number "))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("no JSON at byte %d: %s", syntax.Offset, syntax.Error())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func (q *queueDefinition) options() (engine.QueueOptions, error) {
	o := engine.QueueOptions{Given: queueset.Given{}}
	for s, row := range queueset.All() {
		n := q.settings[s]
		if n == nil {
			continue
		}
		if *n < 0 || !row.Allows(uint64(*n)) {
			return o, fmt.Errorf("%s must be %s, not %d", row.Name, row.Range(), *n)
		}
		o.Given[s] = uint64(*n)
	}
	switch dlq := q.DLQ.(type) {
	case nil:
	case string:
		o.DLQ = &dlq
		if dlq == "" {
			return o, errDLQ
		}
	case bool:
		if dlq {
			return o, errDLQ
		}
		o.NoDLQ = true
	default:
		return o, errDLQ
	}
	return o, nil
}

var errDLQ = errors.New("dlq must be a name or false")
