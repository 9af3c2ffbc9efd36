package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

func (w *world) bind(topic, queue string, conditions ...Condition) (added bool) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) {
		added, err = tx.Bind(topic, Binding{Queue: queue, Conditions: conditions})
		return err
	})
	return added
}

func (w *world) publish(req Publish) (list []Published, err error) {
	w.t.Helper()
	if err := w.PreparePublish(&req); err != nil {
		return nil, err
	}
	err = w.do(func(tx *Tx) (err error) { list, err = tx.Publish(&req); return err })
	return list, err
}

func queuesOf(list []Published) (names []string) {
	for _, p := range list {
		names = append(names, p.Queue)
	}
	return names
}

func TestAMessageGoesToEachQueueWhoseConditionsItMeets(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"c", "a", "b"} {
		w.queue(name, QueueOptions{})
	}
	if !w.bind("t", "c") || !w.bind("t", "a", Condition{Header: "kind", Pattern: "order.*"}) || !w.bind("t", "b", Condition{Header: "kind", Pattern: "order.*"}, Condition{Header: "country", Pattern: "d?"}) || w.bind("t", "c") {
		t.Error("a binding is not as new as it is")
	}
	header := func(words ...string) (list []Header) {
		for i := 0; i < len(words); i += 2 {
			list = append(list, Header{Name: []byte(words[i]), Value: []byte(words[i+1])})
		}
		return list
	}
	for _, x := range []struct {
		headers []Header
		want    []string
	}{
		{nil, []string{"c"}},
		{header("kind", "order.new"), []string{"a", "c"}},
		{header("kind", "Order.new", "country", "de"), []string{"c"}},
		{header("kind", "order.new", "country", "de"), []string{"a", "b", "c"}},
		{header("kind", "other", "kind", "order.new", "country", "deu"), []string{"a", "c"}}, // any header of the name
	} {
		list, err := w.publish(Publish{Topic: "t", Message: Enqueue{Headers: x.headers, Payload: []byte("x")}})
		if got := queuesOf(list); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%s goes to %q, %v; want %q", x.headers, got, err, x.want)
		}
	}
	if list, err := w.publish(Publish{Topic: "nobody", Message: Enqueue{Payload: []byte("x")}}); len(list) != 0 || err != nil {
		t.Errorf("a topic without bindings: %v, %v", list, err)
	}
	for queue, want := range map[string]int64{"a": 3, "b": 1, "c": 5} {
		if n := w.counts(queue); n.Ready != want {
			t.Errorf("%s has %d messages, want %d", queue, n.Ready, want)
		}
	}
}

// What a queue stores is what it would store of an enqueue of its own.
func TestAPublishStoresWhatAnEnqueueWouldStore(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"plain", "hooked", "short"} {
		w.queue(name, QueueOptions{})
	}
	decide := func(*hook.Message, hook.View) (hook.EnqueueDecision, error) {
		return hook.EnqueueDecision{Key: "other", Weight: 7, Throttles: []string{"slow"}}, nil
	}
	w.must(func(tx *Tx) error { return tx.LoadScript("hooked", payingHook{decide: decide}, "") })
	message := func() Enqueue {
		return Enqueue{
			Key: "k", Meta: Meta{Weight: 2, Cost: 3, Throttles: []string{"x", "y", "x"}}, Payload: []byte("payload"),
			Headers: []Header{{Name: []byte("name"), Value: []byte("value")}},
		}
	}
	var one Enqueue
	for _, name := range []string{"plain", "hooked", "short"} {
		w.bind("t", name)
	}
	if _, err := w.publish(Publish{Topic: "t", Message: message()}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "hooked", "short"} {
		one = message()
		one.Queue = name
		w.send(one)
		ds := w.lease(name, 9)
		if len(ds) != 2 {
			t.Fatalf("%s: %d messages", name, len(ds))
		}
		p, e := ds[0], ds[1]
		if string(p.Payload()) != string(e.Payload()) || fmt.Sprint(p.Headers()) != fmt.Sprint(e.Headers()) || p.Key != e.Key || p.Priority() != e.Priority() || (p.Key == "other") != (name == "hooked") {
			t.Errorf("%s: published %+v, enqueued %+v", name, p, e)
		}
		if stored := w.recordsOf(name); len(stored) != 2 || stored[0] != stored[1] {
			t.Errorf("%s: the records are %x", name, stored)
		}
	}
}

// recordsOf returns the records of the messages of a queue.
func (w *world) recordsOf(queue string) (list []string) {
	prefix := storage.AppendQueuePrefix(nil, w.core.queues.byName[queue].no)
	it := w.store.Scan(storage.Messages, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		list = append(list, string(it.Value()))
	}
	return list
}

func TestARefusalLeavesNoMessageAnywhere(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		w.queue(name, QueueOptions{})
		w.bind("t", name)
	}
	w.must(func(tx *Tx) error { return tx.Pause("b", true, false, true) })
	list, err := w.publish(Publish{Topic: "t", Message: Enqueue{Payload: []byte("x")}})
	if !errors.Is(err, ErrPaused) || !strings.Contains(err.Error(), `queue "b"`) || list != nil {
		t.Fatalf("refused by b: %v, %v", list, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if n := w.counts(name); n.Ready != 0 || n.Enqueued != 0 {
			t.Errorf("%s has %+v", name, n)
		}
	}
	if list, err = w.publish(Publish{Topic: "t", BestEffort: true, Message: Enqueue{Payload: []byte("x")}}); err != nil || !slices.Equal(queuesOf(list), []string{"a", "c"}) {
		t.Errorf("with best effort: %v, %v", list, err)
	}
	var info TopicInfo
	w.must(func(tx *Tx) error { info, _ = tx.Topic("t"); return nil })
	if info.Published != 1 || info.Unmatched != 0 {
		t.Errorf("counted: %+v", info)
	}
}

// A topic may change between the preparation of a publish, on the connection, and its turn.
func TestAPublishGoesByTheBindingsOfItsTurn(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"a", "b"} {
		w.queue(name, QueueOptions{})
	}
	w.bind("t", "a")
	for i, change := range []func(){
		func() { w.bind("t", "b") },
		func() { w.bind("t", "a", Condition{Header: "kind", Pattern: "x"}) },
		func() { w.must(func(tx *Tx) error { return tx.DeleteQueue("b", true) }) },
		func() { w.queue("b", QueueOptions{}) }, // not bound
		func() { w.bind("u", "b"); w.bind("t", "a") },
	} {
		req := Publish{Topic: "t", Message: Enqueue{Payload: []byte("x")}}
		if err := w.PreparePublish(&req); err != nil {
			t.Fatal(err)
		}
		change()
		var list []Published
		w.must(func(tx *Tx) (err error) { list, err = tx.Publish(&req); return err })
		if got := queuesOf(list); !slices.Equal(got, [][]string{{"a", "b"}, {"b"}, nil, nil, {"a"}}[i]) {
			t.Errorf("change %d: published to %q", i, got)
		}
	}
}

// In a transaction nothing waits: a change of the topic before the publish refuses it.
func TestATransactionThatChangesATopicCannotPublishToIt(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("a", QueueOptions{})
	w.queue("b", QueueOptions{})
	w.bind("t", "a")
	for _, changes := range []bool{false, true} {
		req := Publish{Topic: "t", Message: Enqueue{Payload: []byte("x")}}
		if err := w.PreparePublish(&req); err != nil {
			t.Fatal(err)
		}
		w.bind("t", "a", Condition{Header: "kind", Pattern: "*"}) // prepared again before the transaction
		w.bind("t", "a")
		bind := callFunc(func(tx *Tx) error {
			if !changes {
				return nil
			}
			_, err := tx.Bind("t", Binding{Queue: "b"})
			return err
		})
		call := &publishTask{req: &req}
		errs := make([]error, 2)
		w.must(func(tx *Tx) error { return tx.Exec([]Call{bind, call}, errs) })
		if want := map[bool]int{false: 1}[changes]; errs[0] != nil || (errs[1] != nil) != changes || len(call.list) != want {
			t.Errorf("with a change %v: %v, %v", changes, call.list, errs)
		}
	}
}

type publishTask struct {
	req  *Publish
	list []Published
}

func (p *publishTask) Preflight(tx *Tx) error { return tx.PreflightPublish(p.req) }
func (p *publishTask) Apply(tx *Tx) (err error) {
	p.list, err = tx.Publish(p.req)
	return err
}

func TestBindingsSurviveARestartAndLeaveWithTheirQueue(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 5 {
		w.queue(fmt.Sprint("q", i), QueueOptions{})
		w.bind("all", fmt.Sprint("q", i), Condition{Header: "a", Pattern: "b*"}, Condition{Header: "c", Pattern: "d"})
		w.bind(fmt.Sprint("t", i), fmt.Sprint("q", i))
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q3", true) })
	w.must(func(tx *Tx) error { _, err := tx.Unbind("t1", "q1"); return err })
	show := func() (all string) {
		w.must(func(tx *Tx) error {
			_, list := tx.Topics(0, 100, func(string) bool { return true })
			slices.SortFunc(list, func(a, b TopicInfo) int { return strings.Compare(a.Name, b.Name) })
			all = fmt.Sprint(list)
			return nil
		})
		return all
	}
	before := show()
	if strings.Contains(before, "q3") || strings.Contains(before, "t1") || !strings.Contains(before, "{q4 [{a b*} {c d}]}") {
		t.Errorf("the bindings are %s", before)
	}
	w.restart()
	if after := show(); after != before {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", after, before)
	}
}

func TestTopicsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	for i := range BindingsMax + 1 {
		w.queue(fmt.Sprint("q", i), QueueOptions{NoDLQ: true})
		if i < BindingsMax {
			w.bind("t", fmt.Sprint("q", i))
		}
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: fmt.Sprint("q", BindingsMax)}); return err }); !errors.Is(err, ErrInvalid) {
		t.Errorf("one binding more: %v", err)
	}
	size := len("payload") + 2 // of the record
	for most, ok := range map[int]bool{0: true, size * BindingsMax: true, size*BindingsMax - 1: false} {
		list, err := w.publish(Publish{Topic: "t", BytesMax: most, Message: Enqueue{Payload: []byte("payload")}})
		if (err == nil) != ok || ok && len(list) != BindingsMax || !ok && !errors.Is(err, ErrTooBig) {
			t.Errorf("at most %d bytes: %d messages, %v", most, len(list), err)
		}
	}
}

// TestAPublishEncodesThePayloadOnce: queues that store the same record share its memory.
func TestAPublishEncodesThePayloadOnce(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 10 {
		w.queue(fmt.Sprint("q", i), QueueOptions{})
		w.bind("t", fmt.Sprint("q", i))
	}
	req := Publish{Topic: "t", Message: Enqueue{Payload: make([]byte, 64<<10)}}
	if err := w.PreparePublish(&req); err != nil {
		t.Fatal(err)
	}
	if n := req.Bytes(); n > 80<<10 {
		t.Errorf("the request takes %d bytes", n)
	}
	if req.Stored() < 640<<10 {
		t.Errorf("it stores %d bytes", req.Stored())
	}
}
