package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of a relay. Those of the table are the same for all relays of it.
type metrics struct {
	rows, refusals, errors         *prometheus.CounterVec
	batch                          prometheus.Histogram
	waiting, oldest, marked, known prometheus.Gauge
}

func newMetrics(to prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		rows:     counter("fila_outbox_rows_total", "Rows that this relay has moved to the broker (enqueued), or marked as refused for good (failed).", "outcome"),
		refusals: counter("fila_outbox_refusals_total", "Refusals of the broker by their code; connection: no reply.", "code"),
		errors:   counter("fila_outbox_errors_total", "Errors after which this relay has paused, by side: database or broker.", "side"),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fila_outbox_batch_seconds", Help: "Duration of batches, from the locks in the database to the commit.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30},
		}),
		waiting: gauge("fila_outbox_rows_waiting", "Rows of the table that are not moved yet; a million if there are more."),
		oldest:  gauge("fila_outbox_oldest_seconds", "Age of the oldest row that is not moved yet; 0 if there is none."),
		marked:  gauge("fila_outbox_rows_failed", "Rows of the table that the broker has refused for good; a million if there are more."),
		known:   gauge("fila_outbox_counted_timestamp_seconds", "When the rows of the table were counted."),
	}
	if to != nil {
		to.MustRegister(m.rows, m.refusals, m.errors, m.batch, m.waiting, m.oldest, m.marked, m.known)
	}
	for _, outcome := range []string{"enqueued", "failed"} {
		m.rows.WithLabelValues(outcome)
	}
	for _, side := range []string{"database", "broker"} {
		m.errors.WithLabelValues(side)
	}
	return m
}

func (m *metrics) moved(rows []*row, took time.Duration) {
	var enqueued, failed float64
	for _, r := range rows {
		switch {
		case r.refused != nil:
			failed++
		case r.done:
			enqueued++
		}
	}
	m.rows.WithLabelValues("enqueued").Add(enqueued)
	m.rows.WithLabelValues("failed").Add(failed)
	m.batch.Observe(took.Seconds())
}

func (m *metrics) refused(h *held) {
	for code, n := range h.codes {
		m.refusals.WithLabelValues(code).Add(float64(n))
	}
}

// countEvery is how often the rows of the table are counted.
const countEvery = 5 * time.Second

const countRows = `
SELECT
	(SELECT count(*) FROM (SELECT FROM fila_outbox WHERE failed_at IS NULL LIMIT 1000000) w),
	coalesce((SELECT extract(epoch FROM clock_timestamp() - min(first.created_at)) FROM fila_outbox_part p CROSS JOIN LATERAL (
		SELECT o.created_at FROM fila_outbox o WHERE o.part = p.part AND o.failed_at IS NULL ORDER BY o.seq LIMIT 1) first), 0)::float8,
	(SELECT count(*) FROM (SELECT FROM fila_outbox WHERE failed_at IS NOT NULL LIMIT 1000000) f)`

// count keeps the figures of the table.
func (r *Relay) count(ctx context.Context) error {
	for {
		if err := r.countOnce(ctx); err != nil {
			return err
		}
		if !wait(ctx, countEvery) {
			return nil
		}
	}
}

func (r *Relay) countOnce(ctx context.Context) error {
	var waiting, marked int64
	var oldest float64
	ctx, cancel := context.WithTimeout(ctx, batchWithin)
	defer cancel()
	if err := r.db.QueryRow(ctx, countRows).Scan(&waiting, &oldest, &marked); err != nil {
		return err
	}
	r.metrics.waiting.Set(float64(waiting))
	r.metrics.oldest.Set(max(oldest, 0))
	r.metrics.marked.Set(float64(marked))
	r.metrics.known.SetToCurrentTime()
	return nil
}

// undefined reports whether a table is missing.
func undefined(err error) bool {
	pg, is := errors.AsType[*pgconn.PgError](err)
	return is && pg.Code == "42P01"
}
