package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// applyQueues applies a set and returns its plan, one line for each queue.
func (w *world) applyQueues(s QueueSet) (string, error) {
	w.t.Helper()
	var changes []QueueChange
	err := w.do(func(tx *Tx) (err error) { changes, err = tx.ApplyQueues(&s); return err })
	var lines []string
	for _, c := range changes {
		line := c.Action + " " + c.Queue
		if c.Topic != "" {
			line += " to " + c.Topic
		}
		for _, f := range c.Fields {
			line += fmt.Sprintf(" %s:%s>%s", f.Name, f.From, f.To)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), err
}

func spec(name string, change ...func(*QueueOptions)) QueueSpec {
	s := QueueSpec{Name: name}
	for _, c := range change {
		c(&s.Options)
	}
	return s
}

func noDLQ(o *QueueOptions) { o.NoDLQ = true }

func dlq(name string) func(*QueueOptions) { return func(o *QueueOptions) { o.DLQ = &name } }

func TestQueuesAreMadeToMatchASet(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.Scripts = simScripts{} })
	script, err := w.CompileScript(hook.Caller{}, hook.OnEnqueue, "-- on_enqueue")
	if err != nil {
		t.Fatal(err)
	}
	orders := spec("orders", func(o *QueueOptions) { o.Given = queueset.Given{queueset.Visibility: 60_000, queueset.MaxAttempts: 3} })
	orders.Hooks[hook.OnEnqueue] = script
	set := QueueSet{Queues: []QueueSpec{spec("mails", dlq("dead")), spec("logs", noDLQ), orders, spec("orders.dlq")}}
	plan := strings.Join([]string{
		"create dead is_dlq:0>1",
		"create logs",
		"create mails dlq:none>dead",
		"create orders visibility_ms:30000>60000 max_attempts:10>3 dlq:none>orders.dlq on_enqueue:none>1",
		"create orders.dlq is_dlq:0>1",
	}, "\n")
	dry := set
	dry.DryRun = true
	step := func(s QueueSet, want string) {
		t.Helper()
		if got, err := w.applyQueues(s); got != want || err != nil {
			t.Errorf("%v, plan\n%s\nwant\n%s", err, got, want)
		}
	}
	step(dry, plan)
	if names := fmt.Sprint(w.queueNames()); names != "[]" {
		t.Errorf("a dry run made %s", names)
	}
	step(set, plan)
	step(set, "")
	w.enqueue("mails", "k", "x")
	again := openWorld(t, store.Clone(), w.Now(), func(c *Config) { c.Scripts = simScripts{} })
	if got, err := again.applyQueues(set); got != "" || err != nil {
		t.Errorf("after a restart: %s, %v", got, err)
	}

	// A setting that the set leaves out gets its default, but a script stays. A queue that
	// the set leaves out stays unless it is pruned, and is never pruned with messages
	// inside.
	set.Queues = []QueueSpec{spec("orders"), spec("logs", noDLQ)}
	step(set, "alter orders visibility_ms:60000>30000 max_attempts:3>10")
	set.Prune = true
	if got, err := w.applyQueues(set); !errors.Is(err, ErrQueueNotEmpty) || got != "" || w.core.queues.byName["mails"] == nil || w.core.queues.byName["dead"] == nil {
		t.Errorf("%s, %v", got, err)
	}
	set.Force = true
	step(set, "delete dead\ndelete mails")
	if names := fmt.Sprint(w.queueNames()); names != "[logs orders orders.dlq]" {
		t.Errorf("left are %s", names)
	}
}

// A set is applied in one batch, so that a crash leaves no part of it.
func TestASetOfQueuesIsOneWrite(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	store.FailCommits(errors.New("no space left"))
	if _, err := w.applyQueues(QueueSet{Queues: []QueueSpec{spec("a"), spec("b"), spec("c")}}); !errors.Is(err, ErrMisconf) {
		t.Error(err)
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	if len(w.core.queues.byName) != 0 {
		t.Errorf("%d queues", len(w.core.queues.byName))
	}
	counted := &batchStore{Memory: storage.NewMemory()}
	w = openWorld(t, counted, time.Unix(1_700_000_000, 0), nil)
	commits := counted.commits
	if _, err := w.applyQueues(QueueSet{Queues: []QueueSpec{spec("a"), spec("b"), spec("c")}}); err != nil {
		t.Fatal(err)
	}
	if n := counted.commits - commits; n != 1 {
		t.Errorf("%d commits", n)
	}
}

func TestSetsThatAreRefusedChangeNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("old", QueueOptions{})
	w.enqueue("old", "k", "p")
	for name, set := range map[string][]QueueSpec{
		"a chain by existence": {spec("good", dlq("old"))},
		"a long name":          {spec("good"), spec(strings.Repeat("n", 256))},
	} {
		if plan, err := w.applyQueues(QueueSet{Queues: set}); err == nil || plan != "" {
			t.Errorf("%s: %q, %v", name, plan, err)
		}
	}
	if names := fmt.Sprint(w.queueNames()); names != "[old old.dlq]" {
		t.Errorf("there are %s", names)
	}
}

func toBind(topic, queue string, conditions ...Condition) TopicBinding {
	return TopicBinding{Topic: topic, Binding: Binding{Queue: queue, Conditions: conditions}}
}

// queueNames returns the names of all queues, in order.
func (w *world) queueNames() (names []string) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { names, err = tx.Queues(); return err })
	return names
}

// shownBindings returns the bindings of all topics, one line for each.
func (w *world) shownBindings() string {
	var lines []string
	_, topics := (&Tx{core: w.core}).Topics(0, 100, func(string) bool { return true })
	for _, t := range topics {
		for i := range t.Bindings {
			lines = append(lines, fmt.Sprint(t.Name, " ", t.Bindings[i].Queue, " ", t.Bindings[i].Conditions))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestBindingsAreMadeToMatchASet(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	step := func(s QueueSet, want string) {
		t.Helper()
		if got, err := w.applyQueues(s); got != want || err != nil {
			t.Errorf("%v, plan\n%s\nwant\n%s", err, got, want)
		}
	}
	step(QueueSet{Queues: []QueueSpec{spec("other", noDLQ)}}, "create other")
	w.bind("t", "other")
	w.bind("u", "other")

	set := QueueSet{
		Queues:   []QueueSpec{spec("a", noDLQ), spec("b", noDLQ)},
		Bindings: []TopicBinding{toBind("t", "b", Condition{Header: "kind", Pattern: "x"}, Condition{Header: "kind", Pattern: "a*"}, Condition{Header: "tier", Pattern: "g"}), toBind("t", "a"), toBind("u", "other", Condition{Header: "k", Pattern: "v"})},
		DryRun:   true,
	}
	plan := strings.Join([]string{
		"create a", "create b",
		"bind a to t", `bind b to t kind:none>"a*" "x" tier:none>"g"`, `rebind other to u k:none>"v"`,
	}, "\n")
	step(set, plan)
	if got, want := w.shownBindings(), "t other []\nu other []"; got != want {
		t.Errorf("a dry run made\n%s", got)
	}
	set.DryRun = false
	step(set, plan)
	step(set, "")
	bound := "t a []\nt b [{kind x} {kind a*} {tier g}]\nt other []\nu other [{k v}]"
	if got := w.shownBindings(); got != bound {
		t.Errorf("bound are\n%s", got)
	}
	if again := openWorld(t, store.Clone(), w.Now(), nil); again.shownBindings() != bound {
		t.Errorf("after a restart\n%s", again.shownBindings())
	}

	// The order and repetition of conditions is no difference.
	set.Bindings[0] = toBind("t", "b", Condition{Header: "tier", Pattern: "g"}, Condition{Header: "kind", Pattern: "a*"}, Condition{Header: "kind", Pattern: "x"}, Condition{Header: "kind", Pattern: "x"})
	step(set, "")
	set.Bindings[0] = toBind("t", "b", Condition{Header: "kind", Pattern: "a*"}, Condition{Header: "new", Pattern: "n"})
	step(set, `rebind b to t kind:"a*" "x">"a*" new:none>"n" tier:"g">none`)

	// Bindings that are not in the set stay unless they are pruned. Those of a queue that is
	// deleted go with it.
	set.Bindings = []TopicBinding{toBind("t", "a")}
	step(set, "")
	set.Prune = true
	step(set, "delete other\nunbind b to t")
	if got := w.shownBindings(); got != "t a []" {
		t.Errorf("left are\n%s", got)
	}
}

// Queues and bindings are one write.
func TestASetWithBindingsIsOneWrite(t *testing.T) {
	counted := &batchStore{Memory: storage.NewMemory()}
	w := openWorld(t, counted, time.Unix(1_700_000_000, 0), nil)
	commits := counted.commits
	_, err := w.applyQueues(QueueSet{Queues: []QueueSpec{spec("a"), spec("b")}, Bindings: []TopicBinding{toBind("t", "a"), toBind("t", "b")}})
	if n := counted.commits - commits; err != nil || n != 1 || w.shownBindings() != "t a []\nt b []" {
		t.Errorf("%v, %d commits, bound are\n%s", err, n, w.shownBindings())
	}
}

func TestBindingsThatAreRefusedChangeNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("old", QueueOptions{})
	w.bind("old", "old")
	full := make([]TopicBinding, 0, BindingsMax+1)
	var queues []QueueSpec
	for i := range BindingsMax + 1 {
		name := fmt.Sprint("q", i)
		queues = append(queues, spec(name, noDLQ))
		full = append(full, toBind("t", name))
	}
	for name, x := range map[string]struct {
		set  QueueSet
		want string
	}{
		"no topic":      {QueueSet{Bindings: []TopicBinding{toBind("old", "old"), toBind("", "old")}}, `topic "", queue "old": not allowed: the name of a topic has at least one byte`},
		"no queue":      {QueueSet{Bindings: []TopicBinding{toBind("t", "old"), toBind("t", "none")}}, `topic "t", queue "none": no such queue`},
		"pruned":        {QueueSet{Bindings: []TopicBinding{toBind("t", "old")}, Prune: true}, `topic "t", queue "old": not allowed: the queue is not in the definition, so PRUNE would delete it`},
		"twice":         {QueueSet{Bindings: []TopicBinding{toBind("t", "old"), toBind("t", "old")}}, `topic "t", queue "old": not allowed: the binding is there twice`},
		"a pattern":     {QueueSet{Bindings: []TopicBinding{toBind("t", "old", Condition{Header: "k", Pattern: "[a"})}}, `topic "t", queue "old": not allowed: the pattern "[a" of header "k" has a [ without its ]`},
		"too many":      {QueueSet{Queues: queues, Bindings: full}, `topic "t", queue "q1000": not allowed: topic "t" has 1000 bindings, which is the limit`},
		"too many, new": {QueueSet{Queues: append(queues, spec("old")), Bindings: full, Prune: true}, `topic "t", queue "q1000": not allowed: topic "t" has 1000 bindings, which is the limit`},
	} {
		plan, err := w.applyQueues(x.set)
		if err == nil || plan != "" || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%s: %q, %v, want %s", name, plan, err, x.want)
		}
	}
	if got := w.shownBindings(); got != "old old []" {
		t.Errorf("bound are\n%s", got)
	}
	set := QueueSet{Queues: append(queues[:BindingsMax:BindingsMax], spec("old")), Bindings: full[:BindingsMax], Prune: true}
	if _, err := w.applyQueues(set); err != nil || w.core.topics.Len() != BindingsMax {
		t.Errorf("%v, %d bindings", err, w.core.topics.Len())
	}
}
