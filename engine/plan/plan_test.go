package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/engine/internal/limits"
	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/internal/throttleset"
	"github.com/faisca/fila/storage"
)

// script is a hook whose source is its version.
type script struct {
	hook.Hook
	source string
}

func (s script) Source() string  { return s.source }
func (s script) Version() string { return s.source }

func spec(name string, change ...func(*Options)) QueueSpec {
	s := QueueSpec{Name: name}
	for _, c := range change {
		c(&s.Options)
	}
	return s
}

func dlq(name string) func(*Options) { return func(o *Options) { o.DLQ = &name } }

func noDLQ(o *Options) { o.NoDLQ = true }

func given(v queueset.Given) func(*Options) { return func(o *Options) { o.Given = v } }

// there returns a queue "old" with a dead-letter queue of its own, which has one message, and what else is given.
func there(more ...*Queue) *Present {
	l := limits.Default()
	p := &Present{Queues: map[string]*Queue{}, Now: 7, Limits: &l}
	p.Defaults[queueset.Visibility], p.Defaults[queueset.MaxAttempts] = 30_000, 10
	old := &storage.Queue{Number: 1, Values: p.Defaults, DLQ: "old.dlq", CreatedAt: 1, OnEnqueue: "v1"}
	dead := &storage.Queue{Number: 2, Values: p.Defaults.Inherited(), DeadLetter: true, CreatedAt: 1}
	for _, q := range append([]*Queue{
		{Name: "old", Set: old, Messages: 1, Hooks: [2]hook.Hook{script{source: "v1"}}}, {Name: "old.dlq", Set: dead, Empty: true},
	}, more...) {
		p.Queues[q.Name] = q
	}
	return p
}

// shown returns the steps of a plan, one line for each.
func shown(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%s %s %v %d\n", s.Action, s.Queue, s.Fields, s.Messages)
	}
	return b.String()
}

func TestAPlanHasWhatDiffers(t *testing.T) {
	p, set := there(), Set{Queues: []QueueSpec{spec("old", given(queueset.Given{queueset.TTL: 5})), spec("new", dlq("dead")), spec("plain", noDLQ)}, Prune: true}
	set.Queues[0].Hooks = [2]hook.Hook{script{source: "v2"}, nil}
	plan, err := OfQueues(&set, p)
	if err != nil {
		t.Fatal(err)
	}
	want := "create dead [{is_dlq 0 1}] 0\ncreate new [{dlq none dead}] 0\nalter old [{ttl_ms 0 5} {on_enqueue v1 v2}] 0\ncreate plain [] 0\n"
	if got := strings.ReplaceAll(shown(plan.Steps), "{visibility_ms 30000 30000} ", ""); got != want {
		t.Errorf("the plan is\n%swant\n%s", got, want)
	}
	old := plan.Steps[2].Set
	if old.Number != 1 || old.CreatedAt != 1 || old.DLQ != "old.dlq" || old.OnEnqueue != "v2" || p.Queues["old"].Set.OnEnqueue != "v1" {
		t.Errorf("the queue is to be %+v, and is %+v", old, p.Queues["old"].Set)
	}
	if dead := plan.Steps[0].Set; dead.CreatedAt != 7 || !dead.DeadLetter || dead.Values[queueset.Visibility] != 30_000 {
		t.Errorf("the dead-letter queue is to be %+v", dead)
	}
	if !plan.Has("old.dlq") || plan.Has("other") {
		t.Error("the dead-letter queue belongs to the set of the queue that names it")
	}
}

func TestAPlanDeletesWhatASetDoesNotHave(t *testing.T) {
	set := Set{Queues: []QueueSpec{spec("new", noDLQ)}, Prune: true}
	if _, err := OfQueues(&set, there()); !errors.Is(err, refusals.ErrQueueNotEmpty) {
		t.Errorf("a queue with messages: %v", err)
	}
	set.Force = true
	plan, err := OfQueues(&set, there())
	if want := "create new [] 0\ndelete old [] 1\ndelete old.dlq [] 0\n"; err != nil || shown(plan.Steps) != want {
		t.Errorf("the plan is %v\n%s", err, shown(plan.Steps))
	}
}

func TestSetsThatCannotBeAreRefused(t *testing.T) {
	for name, set := range map[string][]QueueSpec{
		"no name":                {spec("good"), spec("")},
		"a control character":    {spec("good"), spec("a\nb")},
		"twice":                  {spec("good"), spec("good")},
		"its own":                {spec("good", dlq("good"))},
		"a chain":                {spec("good", dlq("b")), spec("b", dlq("c"))},
		"a chain by existence":   {spec("good", dlq("old"))},
		"a chain from outside":   {spec("old.dlq", dlq("x")), spec("good")},
		"a long dead one":        {spec("good", dlq(strings.Repeat("n", 256)))},
		"no dead one":            {spec("good", dlq(""))},
		"one and none":           {spec("good", dlq("b"), noDLQ)},
		"a value":                {spec("good", given(queueset.Given{queueset.Visibility: 0}))},
		"a batch without a wait": {spec("good", given(queueset.Given{queueset.Batch: 2}))},
		"a batch in order":       {spec("good", given(queueset.Given{queueset.Batch: 2, queueset.BatchWait: 1, queueset.Ordered: 1}))},
		"a shorter backoff":      {spec("good", given(queueset.Given{queueset.Backoff: 2, queueset.MaxBackoff: 1}))},
		"order of messages":      {spec("old", given(queueset.Given{queueset.Ordered: 1}))},
		"a long name":            {spec("good"), spec(strings.Repeat("n", 256))},
	} {
		if plan, err := OfQueues(&Set{Queues: set}, there()); err == nil || plan != nil || !errors.Is(err, refusals.ErrInvalid) && !errors.Is(err, refusals.ErrTooBig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A queue that was only made, to be named, gives up the dead-letter queue that it got.
func TestAnUnusedQueueCanBecomeADeadLetterQueue(t *testing.T) {
	fresh := func(dlq string, unused bool) *Queue {
		return &Queue{Name: "fresh", Set: &storage.Queue{Number: 3, DLQ: dlq}, Empty: true, Unused: unused}
	}
	for _, x := range []struct {
		q    *Queue
		want bool
	}{{fresh("", false), true}, {fresh("fresh.dlq", true), true}, {fresh("fresh.dlq", false), false}, {fresh("other", true), false}} {
		plan, err := OfQueues(&Set{Queues: []QueueSpec{spec("good", dlq("fresh"))}}, there(x.q))
		if (err == nil) != x.want {
			t.Errorf("dead-letter queue %q, unused %v: %v", x.q.Set.DLQ, x.q.Unused, err)
		} else if err == nil && (!plan.Steps[0].Set.DeadLetter || plan.Steps[0].Set.DLQ != "") {
			t.Errorf("it is to be %+v", plan.Steps[0].Set)
		}
	}
}

func TestThrottlesAreComparedBySetting(t *testing.T) {
	rate := func(key string, r float64) ThrottleSpec {
		return ThrottleSpec{key, throttleset.Options{Rate: &r}}
	}
	l := limits.Default()
	now := map[string]storage.Throttle{"same": {Rate: 5, Burst: 5}, "other": {Rate: 1, Burst: 1}, "rest*": {Concurrency: 3}}
	plan := func(set Set) string {
		steps, err := OfThrottles(&set, now, &l)
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		for _, s := range steps {
			fmt.Fprintf(&b, "%s %s %v %v;", s.Action, s.Throttle, s.Fields, s.To.Rate)
		}
		return b.String()
	}
	set := Set{ThrottleSpecs: []ThrottleSpec{rate("same", 5), rate("other", 2), rate("new", 1)}}
	want := "throttle new [{rate none 1} {burst none 1}] 1;rethrottle other [{rate 1 2} {burst 1 2}] 2;"
	if got := plan(set); got != want {
		t.Errorf("the plan is %s", got)
	}
	if set.Prune = true; plan(set) != want+"unthrottle rest* [] 0;" {
		t.Errorf("the plan is %s", plan(set))
	}
	if got := plan(Set{Prune: true}); got != "" {
		t.Errorf("a set without throttles leaves them alone: %s", got)
	}
	for _, bad := range []Set{{ThrottleSpecs: []ThrottleSpec{rate("a", 0)}}, {ThrottleSpecs: []ThrottleSpec{rate("", 1)}}, {ThrottleSpecs: []ThrottleSpec{rate("a", 1), rate("a", 1)}}} {
		if got := plan(bad); !strings.HasPrefix(got, "throttle ") || !strings.Contains(got, refusals.ErrInvalid.Error()) {
			t.Errorf("%v: %s", bad.ThrottleSpecs, got)
		}
	}
}
