package metrics

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes docs/reference/metrics.md.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n### %s\n", g.Title)
		if g.Text != "" {
			fmt.Fprintf(&b, "\n%s\n", g.Text)
		}
		b.WriteString("\n| metric | type | labels | what it is | the same in |\n|---|---|---|---|---|\n")
		for i := range g.Metrics {
			m := &g.Metrics[i].Metric
			fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s | %s |\n", Prefix, m.Name, m.Kind, quoted(m.Labels), m.Help, m.From)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func quoted(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

const documentHead = "# Metrics\n\n" +
	"This page is made from the table in `internal/ops/metrics`: `make docs` writes it.\n\n" +
	"The broker shows its figures to Prometheus and everything that reads its formats: at `/metrics` of the admin listener " +
	"(`admin.listen_addr`, see [configuration](configuration.md)), and as the reply of `FILA.METRICS`. They are made when they are asked for; a scrape of ten " +
	"thousand queues with a million fairness keys holds up no other client, as the engine gives its figures a page at a time.\n\n" +
	"```yaml\n" +
	"scrape_configs:\n" +
	"  - job_name: fila\n" +
	"    basic_auth: { username: prometheus, password_file: /etc/prometheus/fila-password }\n" +
	"    static_configs: [{ targets: [\"127.0.0.1:5557\"] }]\n" +
	"```\n\n" +
	"The user needs one right, and sees the queues to which it has one:\n\n" +
	"```\n" +
	"ACL SETUSER prometheus on >PASSWORD resetkeys ~* -@all +fila.metrics\n" +
	"```\n\n" +
	"[deploy/compose](../../deploy/compose) has Prometheus and Grafana with everything set up, [deploy/prometheus](../../deploy/prometheus) the alert rules and " +
	"[deploy/grafana](../../deploy/grafana) the dashboard. What to do about an alert is in [operations](../how-to/operations.md#alerts). " +
	"They are for Prometheus 2.40 and newer. Older versions, such as 2.31 of Ubuntu 22.04, have no native histograms; the alert rules and all panels but \"Commands\" work with them too.\n\n" +
	"## Reading them\n\n" +
	"- Counters begin at 0 with the broker and never go back while queues, keys and throttles come and go: use `rate` and `increase`.\n" +
	"- Histograms are [native ones](https://prometheus.io/docs/specs/native_histograms/) when the scraper asks for protobuf, as Prometheus 2.40 and newer do with " +
	"`--enable-feature=native-histograms`: four buckets for each power of two, from a microsecond to 48 days. Else they have 13 bounds, powers of four from 61 µs to 17 minutes. " +
	"`histogram_quantile(0.99, rate(fila_queue_wait_seconds[5m]))` reads the first kind, " +
	"`histogram_quantile(0.99, sum by (queue, le) (rate(fila_queue_wait_seconds_bucket[5m])))` the second.\n" +
	"- A queue, key or throttle whose name is not UTF-8 is shown with `\\xNN` for each byte that is not; a `\\x` in a name is shown as `\\x5cx`.\n" +
	"- No id, address, user or text of an error is ever a label.\n\n" +
	"## The metrics\n"
