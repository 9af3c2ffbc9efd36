// Package definition reads what FILA.QUEUE APPLY is given: queues, their bindings to topics, and throttles in JSON. It compiles
// no scripts.
package definition

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
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
)

// queueFields is a queue in JSON.
type queueFields struct {
	Name      string `json:"name"`
	DLQ       any    `json:"dlq"`
	OnEnqueue string `json:"on_enqueue"`
	OnFailure string `json:"on_failure"`

	settings [len(queueset.Values{})]*int64 // nil if absent, since 0 is a value
}

// bindingFields is the binding of a queue to a topic in JSON.
type bindingFields struct {
	Name    string         `json:"name"`
	Queue   string         `json:"queue"`
	Headers map[string]any `json:"headers"` // a pattern, or an array of them
}

// binding returns the binding, with its conditions in the order of headers.
func (d *bindingFields) binding() (engine.TopicBinding, error) {
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

// throttleFields is a throttle or a pattern in JSON.
type throttleFields struct {
	Name        string   `json:"name"`
	Rate        *float64 `json:"rate"`
	Burst       *uint64  `json:"burst"`
	Concurrency *uint64  `json:"concurrency"`
	ByCost      bool     `json:"by_cost"`
	Adaptive    bool     `json:"adaptive"`
	Min         *uint64  `json:"min"`
}

// definitionType is a definition: an array of queueFields with a field for each setting, made
// from the table of settings, one of bindingFields and one of throttleFields. So the JSON decoder knows all names: it refuses unknown fields and
// names a field with a wrong value.
func definitionType() reflect.Type {
	var fields []reflect.StructField
	for f := range reflect.TypeFor[queueFields]().Fields() {
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
	topics := reflect.StructField{Name: "Topics", Type: reflect.TypeFor[[]bindingFields](), Tag: `json:"topics"`}
	throttles := reflect.StructField{Name: "Throttles", Type: reflect.TypeFor[[]throttleFields](), Tag: `json:"throttles"`}
	return reflect.StructOf([]reflect.StructField{queues, topics, throttles})
}

// readDefinition returns the definition of a queue from an element of the array in definitionType.
func readDefinition(v reflect.Value) (q queueFields) {
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

// Parse returns the set that a definition describes, without hooks, and the sources of the hooks of each queue, by kind.
// An error says what is wrong with the definition.
func Parse(definition []byte) (set engine.QueueSet, sources [][2]string, err error) {
	all := reflect.New(definitionType())
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(definition, []byte("\ufeff")))) // of a file as some editors write it
	d.DisallowUnknownFields()
	if err := d.Decode(all.Interface()); err != nil {
		return set, nil, errors.New("definition: " + definitionError(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return set, nil, errors.New("definition: something follows its end")
	}
	queues := all.Elem().Field(0)
	for i := range queues.Len() {
		q := readDefinition(queues.Index(i))
		o, err := q.options()
		if err != nil {
			return set, nil, fmt.Errorf("queue %.255q: %w", q.Name, err)
		}
		set.Queues = append(set.Queues, engine.QueueSpec{Name: q.Name, Options: o})
		sources = append(sources, [2]string{hook.OnEnqueue: q.OnEnqueue, hook.OnFailure: q.OnFailure})
	}
	bindings, _ := reflect.TypeAssert[[]bindingFields](all.Elem().Field(1))
	for i := range bindings {
		b, err := bindings[i].binding()
		if err != nil {
			return set, nil, fmt.Errorf("topic %.255q, queue %.255q: %w", b.Topic, b.Queue, err)
		}
		set.Bindings = append(set.Bindings, b)
	}
	throttles, _ := reflect.TypeAssert[[]throttleFields](all.Elem().Field(2))
	for _, t := range throttles {
		set.ThrottleSpecs = append(set.ThrottleSpecs, engine.ThrottleSpec{Key: t.Name, Options: engine.ThrottleOptions{
			Rate: t.Rate, Burst: t.Burst, Concurrency: t.Concurrency, ByCost: t.ByCost, Adaptive: t.Adaptive, Min: t.Min,
		}})
	}
	return set, sources, nil
}

// definitionError describes what is wrong with a definition in terms of JSON instead of Go types.
func definitionError(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := map[reflect.Kind]string{reflect.Int64: "a whole number", reflect.Uint64: "a whole number from 0 up", reflect.Float64: "a number", reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array"}[wrong.Type.Kind()]
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

func (q *queueFields) options() (engine.QueueOptions, error) {
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
