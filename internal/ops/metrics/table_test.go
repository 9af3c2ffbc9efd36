package metrics

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/hook"
)

func update() *bool { return flag.Bool("update", false, "write docs/reference/metrics.md") }

var updating = update() //nolint:gochecknoglobals // a flag of this test

const document = "../../../docs/reference/metrics.md"

func TestTheDocumentIsMadeFromTheTable(t *testing.T) {
	var b bytes.Buffer
	if err := Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if *updating {
		if err := os.WriteFile(document, b.Bytes(), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(document); err != nil || !bytes.Equal(old, b.Bytes()) {
		t.Errorf("docs/reference/metrics.md is not what the table says (%v): make docs", err)
	}
}

func TestTheTableDescribesEveryMetricOnce(t *testing.T) {
	names := map[string]bool{}
	ids := map[id]bool{}
	label := regexp.MustCompile(`^[a-z]+$`)
	for _, g := range groups() {
		for i := range g.Metrics {
			m := &g.Metrics[i]
			if names[m.Name] || ids[m.id] {
				t.Errorf("%s is there twice", m.Name)
			}
			names[m.Name], ids[m.id] = true, true
			if !strings.HasSuffix(m.Help, ".") || strings.Contains(m.Help, "|") {
				t.Errorf("%s: %q", m.Name, m.Help)
			}
			if strings.HasSuffix(m.Name, "_total") != (m.Kind == Counter) {
				t.Errorf("%s is a %v", m.Name, m.Kind)
			}
			for _, l := range m.Labels {
				if !label.MatchString(l) {
					t.Errorf("%s has a label %q", m.Name, l)
				}
			}
		}
	}
	for i := range idCount {
		if !ids[i] {
			t.Errorf("metric %d is not in the table", i)
		}
	}
}

// full returns a broker of which every metric has a series.
func full(t *testing.T) (*broker, *Server) {
	t.Helper()
	took := &histogram.Histogram{}
	took.Observe(time.Millisecond)
	b := start(t, Config{Queues: 10, Keys: 10, Throttles: 10, Budgets: 10, Process: Process{
		Version: "1.0.0", Revision: "abc", RocksDB: "7.8", Go: "go1.26",
		Loop: func() Loop { return Loop{EventsLost: 3, BatchTasks: *took} },
		Store: func() (Store, bool) {
			return Store{LevelFiles: []uint64{1, 0}, CacheHits: 5, Stalled: time.Second}, true
		},
		Certificates: func() map[string]time.Time { return map[string]time.Time{"tls": time.Unix(2e9, 0)} },
		Spans:        func() map[string]uint64 { return map[string]uint64{"exported": 1, "dropped": 0} },
		Replication: func() Replication {
			return Replication{Leads: true, States: map[string]uint64{"online": 3, "down": 0}, Voters: 3, Confirms: took, Applies: took}
		},
	}})
	b.do(func(tx *engine.Tx) error { return tx.CreateQueue("orders", engine.QueueOptions{}) })
	h, err := b.CompileScript(hook.Caller{}, hook.OnEnqueue, "source")
	if err != nil {
		t.Fatal(err)
	}
	b.enqueue("orders", "tenant")
	b.enqueue("orders", "tenant")
	b.deliver("orders")
	b.do(func(tx *engine.Tx) error { return tx.LoadScript("orders", h, "test") })
	b.do(func(tx *engine.Tx) error {
		return tx.SetThrottle("provider", engine.ThrottleOptions{Rate: new(2.0), Concurrency: new(uint64(5)), Adaptive: true})
	})
	b.setBudget("acme", true)
	server := &Server{
		Commands: []Command{{Name: "fila.lease", Took: took, Failed: 1}}, Errors: map[string]uint64{"ERR": 1}, Denials: map[string]uint64{"command": 1},
		Connections: 1, ConnectionsLimit: 2, StoreBytes: 1, StoreFree: 2, Turns: *took, Commits: *took, Node: true,
	}
	return b, server
}

// notHere are the metrics that have no series in the set-up of full: a store in memory has no backups.
func notHere() []string { return []string{"backup_last_success_timestamp_seconds"} }

func TestEveryMetricOfTheTableHasSeriesWithItsLabels(t *testing.T) {
	b, server := full(t)
	for _, format := range []Format{Text, Protobuf} {
		s := b.collector.Scrape()
		b.do(s.Apply)
		text, err := s.Write(format, server, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all map[string]*dto.MetricFamily
		if format == Text {
			all = parse(t, text)
		} else {
			all = native(t, text)
		}
		for _, m := range table() {
			of := all[Prefix+m.Name]
			if of == nil {
				if !slices.Contains(notHere(), m.Name) {
					t.Errorf("%s: %s%s has no series", format, Prefix, m.Name)
				}
				continue
			}
			if strings.ToLower(of.GetType().String()) != m.Kind.String() || of.GetHelp() != m.Help {
				t.Errorf("%s is a %v: %s", m.Name, of.GetType(), of.GetHelp())
			}
			for _, series := range of.GetMetric() {
				var labels []string
				for _, l := range series.GetLabel() {
					labels = append(labels, l.GetName())
				}
				if !slices.Equal(labels, m.Labels) {
					t.Errorf("%s has the labels %v, want %v", m.Name, labels, m.Labels)
				}
				if h := series.GetHistogram(); h != nil && (h.Schema != nil) != (format == Protobuf) {
					t.Errorf("%s: schema %v in %s", m.Name, h.Schema, format)
				}
			}
		}
		for name := range all {
			own, ours := strings.CutPrefix(name, Prefix)
			if known := slices.ContainsFunc(tableSlice(), func(m *Metric) bool { return m.Name == own }); ours && !known {
				t.Errorf("%s is not in the table", name)
			}
		}
	}
}

func tableSlice() []*Metric {
	all := table()
	return all[:]
}

func TestTheLinterOfPrometheusFindsNothing(t *testing.T) {
	b, server := full(t)
	s := b.collector.Scrape()
	b.do(s.Apply)
	text, err := s.Write(Text, server, nil)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, Prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestTheFormatIsTheOneThatTheScraperPrefers(t *testing.T) {
	const proto = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	for accept, want := range map[string]Format{
		"":                         Text,
		"*/*":                      Text,
		"application/json":         Text,
		"text/plain;version=0.0.4": Text,
		"application/openmetrics-text;version=1.0.0,text/plain;q=0.5": OpenMetrics,
		proto + ",application/openmetrics-text;version=1.0.0;q=0.8":   Protobuf,
		proto + ";q=0.3,text/plain;version=0.0.4;q=0.9":               Text,
	} {
		got, contentType := Negotiate(http.Header{"Accept": {accept}})
		if got != want || contentType != want.ContentType() {
			t.Errorf("%q gives %s as %q, want %s", accept, got, contentType, want)
		}
	}
}

func TestAScriptThatIsReplacedGoesOnCounting(t *testing.T) {
	b := start(t, Config{Queues: 10})
	b.create("orders")
	took := func(stats hook.Stats) hook.Stats {
		stats.Latency.Observe(time.Millisecond)
		return stats
	}
	load := func(stats hook.Stats) {
		h, err := b.CompileScript(hook.Caller{}, hook.OnFailure, "source")
		if err != nil {
			t.Fatal(err)
		}
		h.(*script).stats = stats //nolint:forcetypeassert // the loader of this test
		b.do(func(tx *engine.Tx) error { return tx.LoadScript("orders", h, "test") })
	}
	want := func(ok, failed, limit float64) {
		t.Helper()
		counters, _ := series(b.families(nil))
		wantSeries(t, counters, map[string]float64{
			`fila_script_calls_total{hook=on_failure,outcome=ok,queue=orders}`:    ok,
			`fila_script_calls_total{hook=on_failure,outcome=error,queue=orders}`: failed,
			`fila_script_calls_total{hook=on_failure,outcome=limit,queue=orders}`: limit,
		})
	}
	load(took(hook.Stats{Calls: 10, Recalled: 2, Errors: 4, Limits: 1, Rejected: 1}))
	want(5, 2, 1)
	load(took(hook.Stats{Calls: 1, Limits: 1, Errors: 1}))
	want(5, 2, 2)
	counters, _ := series(b.families(nil))
	wantSeries(t, counters, map[string]float64{
		`fila_script_decisions_rejected_total{hook=on_failure,queue=orders}`: 1,
		`fila_script_duration_seconds{hook=on_failure,queue=orders}_count`:   2,
	})
}
