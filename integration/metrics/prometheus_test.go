package metrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

const (
	rules     = "../../deploy/prometheus/fila.rules.yaml"
	rulesTest = "../../deploy/prometheus/fila.rules_test.yaml"
	dashboard = "../../deploy/grafana/fila.json"
	handbook  = "../../docs/how-to/operations.md"
)

// tool returns a program of Debian's package prometheus. Without it the test fails in CI and is
// skipped elsewhere.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v: apt-get install prometheus", err)
	}
	return path
}

func TestPromtoolFindsNothingWrongWithTheMetrics(t *testing.T) {
	promtool := tool(t, "promtool")
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	busy(t, c)
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(fmt.Sprint(kit.Do(t, c, "FILA.METRICS")))
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// alertNames returns the alerts of the rules.
func alertNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, rules), -1) {
		names = append(names, m[1])
	}
	if len(names) < 15 {
		t.Fatalf("%d alerts", len(names))
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachAlertHasACaseInWhichItFiresAndOneInWhichItIsQuiet(t *testing.T) {
	promtool := tool(t, "promtool")
	cases, help := read(t, rulesTest), read(t, handbook)
	for _, name := range alertNames(t) {
		for _, title := range []string{name + " fires", name + " is quiet"} {
			if !strings.Contains(cases, "name: "+title+"\n") {
				t.Errorf("there is no case %q", title)
			}
		}
		if !strings.Contains(help, "\n### "+name+"\n") || !strings.Contains(read(t, rules), "operations.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("docs/how-to/operations.md does not say what to do about %s", name)
		}
	}
	for _, file := range splitCases(t, cases) {
		if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// splitCases writes the cases that take days into a file of their own, in which rules are evaluated each
// half hour: promtool evaluates all rules in each step of each case. It returns the files.
func splitCases(t *testing.T, text string) []string {
	t.Helper()
	absolute, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	const begins, each = "\n  - name: ", "evaluation_interval: 1m"
	head, rest, _ := strings.Cut(strings.Replace(text, filepath.Base(rules), absolute, 1), begins)
	if !strings.Contains(head, each) || !strings.Contains(head, absolute) {
		t.Fatalf("the tests of rules begin with\n%s", head)
	}
	heads := map[bool]string{false: head, true: strings.Replace(head, each, "evaluation_interval: 30m", 1)}
	for part := range strings.SplitSeq(rest, begins) {
		takesDays := regexp.MustCompile(`eval_time: \d{4,}m`).MatchString(part)
		heads[takesDays] += begins + part
	}
	var files []string
	for takesDays, text := range heads {
		if !strings.Contains(text, begins) {
			t.Errorf("no case, of those that take days: %v", takesDays)
		}
		file := filepath.Join(t.TempDir(), fmt.Sprintf("days-%v.yaml", takesDays))
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// busy makes every metric that the dashboard shows move.
func busy(t *testing.T, c *redis.Client) {
	t.Helper()
	for _, q := range []string{"orders", "emails"} {
		kit.Do(t, c, "FILA.QUEUE", "CREATE", q, "MAXATTEMPTS", 1)
	}
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "paused", "NODLQ", "MAXATTEMPTS", 1)
	kit.Do(t, c, "FILA.QUEUE", "PAUSE", "paused")
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "full", "MAXDEPTH", 1)
	kit.Do(t, c, "FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", "function on_enqueue(msg) return { throttle_keys = { 'provider' } } end")
	kit.Do(t, c, "FILA.THROTTLE", "SET", "provider", "RATE", 1000, "CONCURRENCY", 100, "ADAPTIVE")
	kit.Do(t, c, "FILA.CRON", "SET", "each second", "emails", "* * * * * *", "payload")
	kit.Do(t, c, "FILA.BUDGET", "SET", "acme", "LOW", 100)
	kit.Do(t, c, "FILA.BUDGET", "CREDIT", "acme", 100)
	kit.Do(t, c, "FILA.ENQUEUE", "emails", "dear", "KEY", "acme", "BUDGET", "acme", "CHARGE", 800)
	work(t, c)
}

// work is a part of the load that is repeated while Prometheus scrapes.
func work(t *testing.T, c *redis.Client) {
	t.Helper()
	for i := range 10 {
		for _, q := range []string{"orders", "emails"} {
			kit.Do(t, c, "FILA.ENQUEUE", q, "payload", "KEY", fmt.Sprint("tenant-", i%3), "DEDUP", fmt.Sprint(time.Now().UnixNano()/3))
		}
	}
	r := lease(t, c, "orders", "COUNT", 3)
	if len(r) == 3 {
		kit.Do(t, c, "FILA.ACK", "orders", r[0])
		kit.Do(t, c, "FILA.NACK", "orders", r[1], "ERROR", "refused", "DEAD")
		kit.Do(t, c, "FILA.RELEASE", "orders", r[2])
	}
	lease(t, c, "emails", "VISIBILITY", 1) // it expires, and dies of that
	for range 2 {
		try(t, c, "FILA.ENQUEUE", "full", "x")
	}
	try(t, c, "FILA.ENQUEUE", "nosuch", "x") // fails
	try(t, c, "FILA.ENQUEUE")                // is rejected
	try(t, c, "FILA.REDRIVE", "orders.dlq")
}

// knowsNativeHistograms reports whether the Prometheus of this system is 2.40 or newer, with its version.
func knowsNativeHistograms(t *testing.T) (bool, string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tool(t, "prometheus"), "--version").CombinedOutput()
	m := regexp.MustCompile(`version ((\d+)\.(\d+)\.\S+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("prometheus --version: %v\n%s", err, out)
	}
	major, _ := strconv.Atoi(string(m[2]))
	minor, _ := strconv.Atoi(string(m[3]))
	return major > 2 || major == 2 && minor >= 40, string(m[1])
}

// aNode starts a cluster, and returns the admin address of one of its nodes.
func aNode(t *testing.T) string {
	t.Helper()
	addr := kit.Reserve(t)
	kit.ServeNodesIn(t, kit.Homes(t, 3), func(id string) []string {
		if id != "a" {
			return nil
		}
		return []string{"--admin.listen_addr", addr}
	})
	return addr
}

// prometheus runs a Prometheus that scrapes brokers each second, and returns its address.
func prometheus(t *testing.T, targets []string, options ...string) string {
	t.Helper()
	bin := tool(t, "prometheus")
	dir := t.TempDir()
	absolute, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yaml")
	text := fmt.Sprintf("global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [%s]\nscrape_configs:\n  - job_name: fila\n    static_configs: [{ targets: [%s] }]\n", absolute, `"`+strings.Join(targets, `", "`)+`"`)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := kit.Reserve(t)
	var log bytes.Buffer
	options = append(options, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), bin, options...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", log.String())
		}
	})
	return addr
}

// ask queries a Prometheus and returns the number of series and their kind.
func ask(t *testing.T, addr, expression string) (series int, native bool, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/api/v1/query?query="+url.QueryEscape(expression), http.NoBody)
	if err != nil {
		return 0, false, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, false, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, false, err
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Histogram any }
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, false, fmt.Errorf("%w: %.200s", err, text)
	}
	if answer.Status != "success" {
		return 0, false, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	result := answer.Data.Result
	return len(result), len(result) > 0 && result[0].Histogram != nil, nil
}

// expressions returns those of the dashboard, with values in place of its variables.
func expressions(t *testing.T) []string {
	t.Helper()
	var d struct {
		Panels []struct {
			Title, Description string
			Type               string
			Targets            []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$queue", ".*", "$__rate_interval", "10s")
	var all []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, variables.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List { // the events that they select are rare
		all = append(all, selectors(variables.Replace(a.Expr))...)
	}
	if len(all) < 50 {
		t.Fatalf("%d expressions", len(all))
	}
	return all
}

// selectors returns the metrics that an expression reads, with their labels.
func selectors(expression string) []string {
	return regexp.MustCompile(`\b(?:fila_\w+|process_start_time_seconds|up)\b(?:\{[^}]*\})?`).FindAllString(expression, -1)
}

// ruleExpressions returns the expressions of the alerts.
func ruleExpressions(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, m := range regexp.MustCompile(`(?s)expr: (.*?)\n +(?:for|labels):`).FindAllStringSubmatch(read(t, rules), -1) {
		all = append(all, strings.TrimPrefix(m[1], "|-\n"))
	}
	if len(all) != len(alertNames(t)) {
		t.Fatalf("%d expressions", len(all))
	}
	return all
}

// sought returns what has to have series: the expressions of the dashboard, and what those of the
// rules select. Of a histogram, rules select the series of both kinds, native as name and classic
// as name_bucket: only those of the given kind are there.
func sought(t *testing.T, native bool) map[string]error {
	t.Helper()
	all := map[string]error{}
	for _, e := range expressions(t) {
		all[e] = nil
	}
	named := map[string]bool{}
	for _, e := range ruleExpressions(t) {
		for _, s := range selectors(e) {
			named[s] = true
		}
	}
	for s := range named {
		bucket := strings.Contains(s, "_bucket")
		if native && !bucket || !native && !named[s+"_bucket"] {
			all[s] = nil
		}
	}
	return all
}

func TestPrometheusFindsSeriesForEveryExpression(t *testing.T) {
	knows, version := knowsNativeHistograms(t)
	certificate, key := selfSigned(t)
	secure, addr := kit.Reserve(t), kit.Reserve(t)
	b := kit.Serve(t, "--admin.listen_addr", addr, "--slowlog.slower_than_us", "0", "--tls.listen_addr", secure, "--tls.cert_file", certificate,
		"--tls.key_file", key, "--tls.auth_clients", "no")
	c := kit.Connect(t, b.Addr(), 3)
	busy(t, c)
	kit.Do(t, c, "FILA.BACKUP", "backup")
	testkit.Eventually(t, "the backup is done", func() bool { return metrics(t, c)[`fila_backups_total{outcome="ok"}`] == 1 })

	targets := []string{addr, aNode(t)}

	t.Run("classic histograms", func(t *testing.T) {
		missing := sought(t, false)
		if !knows {
			for e := range missing {
				if strings.Contains(e, "histogram_count(") {
					t.Logf("not judged: Prometheus %s has no histogram_count, which 2.40 and newer have: %s", version, e)
					delete(missing, e)
				}
			}
		}
		finds(t, c, prometheus(t, targets), missing, false)
	})
	t.Run("native histograms", func(t *testing.T) {
		testkit.AtLength(t)
		if !knows && os.Getenv("CI") != "" {
			t.Fatalf("Prometheus %s has no native histograms, which 2.40 and newer have", version)
		} else if !knows {
			t.Skipf("not judged: Prometheus %s has no native histograms, which 2.40 and newer have", version)
		}
		finds(t, c, prometheus(t, targets, "--enable-feature=native-histograms"), sought(t, true), true)
	})
}

// finds works with a broker until the Prometheus that scrapes it has series for all that is missing.
func finds(t *testing.T, c *redis.Client, at string, missing map[string]error, native bool) {
	t.Helper()
	defer func() {
		for e, err := range missing {
			t.Logf("no series (%v): %s", err, e)
		}
	}()
	rulesAreSound := func() { // with data, and before there is any
		for _, e := range ruleExpressions(t) {
			if _, _, err := ask(t, at, e); err != nil {
				t.Errorf("%s: %v", e, err)
			}
		}
	}
	testkit.Eventually(t, "Prometheus answers", func() bool { _, _, err := ask(t, at, "up"); return err == nil })
	rulesAreSound()
	var asked time.Time
	testkit.Eventually(t, "every expression has series", func() bool {
		if time.Since(asked) < time.Second {
			return false // Prometheus scrapes once a second: before that there is nothing new
		}
		asked = time.Now()
		work(t, c)
		for e := range missing {
			var n int
			if n, _, missing[e] = ask(t, at, e); n > 0 {
				delete(missing, e)
			}
		}
		return len(missing) == 0
	})
	name := "fila_queue_wait_seconds"
	if !native {
		name += "_bucket"
	}
	testkit.Eventually(t, "there is the kind of histogram that is asked for", func() bool {
		n, is, err := ask(t, at, name)
		return n > 0 && is == native && err == nil
	})
	rulesAreSound()
	// A scrape that takes more than a second counts as failed.
	testkit.Eventually(t, "both brokers are up", func() bool {
		n, _, err := ask(t, at, `up{job="fila"} == 1`)
		return n == 2 && err == nil
	})
}

func TestEveryMetricOfDashboardAndRulesIsDocumented(t *testing.T) {
	documented := read(t, "../../docs/reference/metrics.md")
	var used []string
	for _, e := range slices.Concat(expressions(t), ruleExpressions(t)) {
		used = append(used, regexp.MustCompile(`fila_\w+`).FindAllString(e, -1)...)
	}
	for _, name := range used {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if !strings.Contains(documented, "`"+name+"`") {
			t.Errorf("%s is not in docs/reference/metrics.md", name)
		}
	}
}
