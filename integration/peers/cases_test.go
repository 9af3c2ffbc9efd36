package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/bench"
)

func TestCasesNameSystemsThatExist(t *testing.T) {
	for _, o := range []options{{backlog: 1, time: time.Second}, {nodes: true, time: time.Second}} {
		var ids, used, names []string
		for _, s := range allSystems(&o) {
			ids = append(ids, s.ID)
		}
		for _, c := range testCases(&o) {
			if slices.Contains(names, c.Name) {
				t.Errorf("two cases are named %s", c.Name)
			}
			names, used = append(names, c.Name), append(used, c.systems...)
			for _, g := range c.goals {
				if !c.has(g.Of) || g.Peer != "" && !c.has(g.Peer) || g.Least > 0 && g.Most > 0 {
					t.Errorf("%s has the goal %+v and the systems %q", c.Name, g, c.systems)
				}
			}
			if l := (&running{}).loadOf(&c, &o); l.Options.Check() != nil || c.Conns*c.Pipeline*c.Payload > 32<<20 {
				t.Errorf("%s: %v, %d bytes at once", c.Name, l.Options.Check(), c.Conns*c.Pipeline*c.Payload)
			}
		}
		slices.Sort(ids)
		slices.Sort(used)
		if used = slices.Compact(used); !slices.Equal(used, ids) {
			t.Errorf("cases use the systems %q of %q", used, ids)
		}
	}
}

func TestFlagsChooseCases(t *testing.T) {
	count := func(o options) int {
		cases, err := chosenCases(&o)
		if err != nil {
			t.Fatal(err)
		}
		return len(cases)
	}
	all := len(testCases(&options{}))
	for _, test := range []struct {
		o    options
		want int
	}{
		{options{}, all},
		{options{quick: true}, 4},
		{options{cases: "cycle-1k,wait-200"}, 2},
		{options{cases: "backlog-64x16", quick: true}, 1},
		{options{nodes: true}, 2},
	} {
		if got := count(test.o); got != test.want {
			t.Errorf("%+v chooses %d cases, want %d", test.o, got, test.want)
		}
	}
	for _, o := range []options{{cases: "cycle-64x17"}, {cases: "cycle-1k,"}, {cases: "wait-200", nodes: true}} {
		if _, err := chosenCases(&o); err == nil || !strings.Contains(err.Error(), "cycle-16x1") {
			t.Errorf("%q: %v", o.cases, err)
		}
	}
	r := &run{options: options{only: "fila,disque"}}
	if _, _, err := r.startAll(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "disque") {
		t.Errorf("an unknown system: %v", err)
	}
}

// queue is a peer in memory that writes down what is asked of it.
type queue struct {
	id     string
	log    *[]string // of all peers
	stored int       // before the load
	ready  chan struct{}
}

func (*queue) Name() string { return "queue" }

func (q *queue) write(what string) { *q.log = append(*q.log, q.id+" "+what) }

func (q *queue) Prepare(context.Context, bench.Shape) error {
	q.write("prepare")
	q.ready = make(chan struct{}, 1<<20)
	return nil
}

func (q *queue) Clean(context.Context) error {
	q.write("clean")
	q.stored = len(q.ready)
	return nil
}

func (q *queue) Connect(context.Context) (bench.Session, error) {
	if last := (*q.log)[len(*q.log)-1]; last != q.id+" load" {
		q.write("load")
	}
	return &queueSession{q}, nil
}

type queueSession struct{ *queue }

func (s *queueSession) Enqueue(n int) error {
	for range n {
		s.ready <- struct{}{}
	}
	return nil
}

func (s *queueSession) Lease(n int) error {
	for range n {
		<-s.ready
	}
	return nil
}

func (*queueSession) Ack() error   { return nil }
func (*queueSession) Close() error { return nil }

func TestSystemsTakeTurnsAndKeepTheirBacklog(t *testing.T) {
	var log []string
	plain := &queue{id: "plain", log: &log}
	full := &queue{id: "full", log: &log}
	systems := []*running{
		{system: &system{ID: "plain"}, peer: plain},
		{system: &system{ID: "full", stored: true}, peer: full},
	}
	o := options{rounds: 2, time: 100 * time.Millisecond, backlog: 5000}
	c := testCase{Name: "test", Workload: bench.Cycle, Conns: 2, Pipeline: 3, Payload: 10, systems: []string{"plain", "full"}}
	r := newResults(&o, nil)
	if err := r.measure(t.Context(), &c, systems, &o, "test"); err != nil {
		t.Fatal(err)
	}
	// Full is the last of the first round and the first of the next one, which is written as one load.
	const want = "full prepare, full load, plain prepare, plain load, plain clean, full load, plain prepare, plain load, plain clean, full clean"
	if got := strings.Join(log, ", "); got != want {
		t.Errorf("it went\n%s\nnot\n%s", got, want)
	}
	if full.stored != 5000 || plain.stored != 0 || systems[1].load != nil {
		t.Errorf("at the end %d messages are stored, and %d where none should be", full.stored, plain.stored)
	}
	if s := r.Cases[0].Systems; len(s) != 2 || len(s[0].Rates) != 2 || len(s[1].Rates) != 2 {
		t.Errorf("it measured %+v", s)
	}
}

// writtenCase and writtenSystem are what is read of peers.json.
type writtenCase struct {
	Name    string
	Systems []writtenSystem
	Summary []verdict
}

type writtenSystem struct {
	ID   string
	Rate float64
	CPU  float64 `json:"cpu_us"`
	Peak int64   `json:"peak_bytes"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
}

// measureBriefly measures one case of Fila and Redis, with one round and a small backlog.
func measureBriefly(t *testing.T, bin, name string, lasts time.Duration) (c writtenCase, said string) {
	t.Helper()
	o := options{
		bin: bin, out: t.TempDir(), rounds: 1, time: lasts, warmup: 50 * time.Millisecond, backlog: 3000, cases: name,
		only: filaAndRedis,
	}
	var b strings.Builder
	if err := measureAll(t.Context(), o, &b); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.out, "peers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Absent []string `json:"not_installed"`
		Cases  []writtenCase
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Absent) > 0 {
		t.Fatalf("make setup-tests installs what the test needs: %s", r.Absent)
	}
	if len(r.Cases) != 1 || r.Cases[0].Name != name {
		t.Fatalf("it measured %+v", r.Cases)
	}
	return r.Cases[0], b.String()
}

const filaAndRedis = "fila,fila-interval,fila-stored,redis-always,redis-everysec,redis-stored"

func TestEveryCaseMeasuresFilaAndRedis(t *testing.T) {
	bin := kit.Binary(t)
	for _, want := range testCases(&options{}) {
		t.Run(want.Name, func(t *testing.T) {
			c, said := measureBriefly(t, bin, want.Name, 300*time.Millisecond)
			tooFast := func(s writtenSystem) bool { return want.Rate > 0 && s.Rate > 2*want.Rate }
			if slices.ContainsFunc(c.Systems, func(s writtenSystem) bool {
				return s.Rate == 0 || tooFast(s) // the disk was busy for as long, or what was due before is made up for
			}) {
				c, said = measureBriefly(t, bin, want.Name, 5*time.Second)
			}
			measured := slices.DeleteFunc(slices.Clone(want.systems), func(id string) bool { return !chosen(filaAndRedis, id) })
			if len(c.Systems) != len(measured) || len(measured) < 2 {
				t.Errorf("it measured %d systems of %s", len(c.Systems), measured)
			}
			for _, s := range c.Systems {
				if s.Rate <= 0 || s.P50 <= 0 || s.P99 < s.P50 || s.CPU <= 0 || s.Peak <= 0 {
					t.Errorf("%s: figures that cannot be: %+v", s.ID, s)
				}
				if tooFast(s) {
					t.Errorf("%s: %.0f a second", s.ID, s.Rate)
				}
			}
			judged := slices.DeleteFunc(slices.Clone(want.goals), func(g goal) bool {
				return !chosen(filaAndRedis, g.Of) || g.Peer != "" && !chosen(filaAndRedis, g.Peer)
			})
			unknown := slices.ContainsFunc(c.Summary, func(v verdict) bool { return !v.Known })
			if len(c.Summary) != len(judged) || len(judged) == 0 || unknown {
				t.Errorf("of %d goals %d were judged: %+v", len(judged), len(c.Summary), c.Summary)
			}
			if !strings.Contains(said, "### Promised, seen and kept") {
				t.Errorf("there is no summary:\n%s", said)
			}
		})
	}
}
