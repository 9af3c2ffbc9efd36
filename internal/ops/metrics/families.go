package metrics

import (
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/ops/nametext"
	"github.com/faisca/fila/internal/yield"
)

// families are the series of one answer, by metric. They are made of the messages that the
// encoders take, as a registry would check and sort at every scrape what the table already says.
type families struct {
	table  *[idCount]*Metric
	native bool // histograms as native ones
	breaks *yield.Breaks
	byID   [idCount]*dto.MetricFamily
}

// labels are the label pairs of one or more series: series of one queue share theirs.
type labels []*dto.LabelPair

func label(name, value string) labels { return labels{{Name: &name, Value: &value}} }

// text returns the text of a name in a label.
func text(name string) string { return nametext.Of(name, math.MaxInt) }

// with returns the labels and one more.
func (l labels) with(name, value string) labels {
	return append(slices.Clip(l), &dto.LabelPair{Name: &name, Value: &value})
}

// add adds a series to a metric.
func (f *families) add(id id, m *dto.Metric) {
	f.breaks.Take()
	of := f.byID[id]
	if of == nil {
		row := f.table[id]
		kind := dto.MetricType_GAUGE
		switch row.Kind {
		case Counter:
			kind = dto.MetricType_COUNTER
		case Histogram:
			kind = dto.MetricType_HISTOGRAM
		default:
		}
		name := Prefix + row.Name
		of = &dto.MetricFamily{Name: &name, Help: &row.Help, Type: &kind}
		f.byID[id] = of
	}
	of.Metric = append(of.Metric, m)
}

// value adds a series with one number to a gauge or a counter.
func (f *families) value(id id, v float64, l labels) {
	s := &struct {
		m dto.Metric
		g dto.Gauge
		c dto.Counter
		v float64
	}{v: v}
	s.m.Label = l
	if f.table[id].Kind == Counter {
		s.c.Value = &s.v
		s.m.Counter = &s.c
	} else {
		s.g.Value = &s.v
		s.m.Gauge = &s.g
	}
	f.add(id, &s.m)
}

func (f *families) count(id id, n uint64, l labels) { f.value(id, float64(n), l) }

func (f *families) number(id id, n int64, l labels) { f.value(id, float64(n), l) }

func (f *families) flag(id id, set bool, l labels) {
	v := 0.0
	if set {
		v = 1
	}
	f.value(id, v, l)
}

// observed adds a histogram: a native one, or one with the classic bounds.
func (f *families) observed(id id, h *histogram.Histogram, l labels) {
	n, sum := h.Count(), h.Seconds()
	d := &dto.Histogram{SampleCount: &n, SampleSum: &sum}
	if f.native {
		addNative(d, h)
	} else {
		addClassic(d, h)
	}
	f.add(id, &dto.Metric{Label: l, Histogram: d})
}

// addClassic adds the buckets of a histogram with fixed bounds. The encoders add the last one.
func addClassic(d *dto.Histogram, h *histogram.Histogram) {
	bounds, within := histogram.ClassicBounds(), h.Classic()
	buckets := new([histogram.ClassicCount]dto.Bucket)
	d.Bucket = make([]*dto.Bucket, len(buckets))
	for i := range buckets {
		buckets[i].UpperBound, buckets[i].CumulativeCount = &bounds[i], &within[i]
		d.Bucket[i] = &buckets[i]
	}
}

// addNative adds the buckets of a native histogram: spans of neighbours, and the difference of
// each bucket's count from that of the one before it. Short gaps are empty buckets, as a span
// takes more than these.
func addNative(d *dto.Histogram, h *histogram.Histogram) {
	const gapMax = 2
	schema, threshold, zero := int32(histogram.Schema), histogram.ZeroBound(), h.Zero()
	d.Schema, d.ZeroThreshold, d.ZeroCount = &schema, &threshold, &zero
	next, before := math.MinInt32, int64(0) // the bucket behind the last span, the last count
	var last *dto.BucketSpan
	put := func(n int64) {
		*last.Length++
		d.PositiveDelta = append(d.PositiveDelta, n-before)
		before = n
		next++
	}
	for i, n := range h.Buckets() {
		if last == nil || i-next > gapMax {
			offset := i - next
			if last == nil {
				offset = i
			}
			last = &dto.BucketSpan{Offset: new(int32(offset)), Length: new(uint32(0))}
			d.PositiveSpan = append(d.PositiveSpan, last)
			next = i
		}
		for next < i {
			put(0)
		}
		put(int64(n))
	}
	if last == nil { // an empty span says that this is a native histogram
		d.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
}

// all returns the metrics that have series, in the order of the table.
func (f *families) all() []*dto.MetricFamily {
	all := make([]*dto.MetricFamily, 0, idCount)
	for _, g := range groups() {
		for i := range g.Metrics {
			if of := f.byID[g.Metrics[i].id]; of != nil {
				all = append(all, of)
			}
		}
	}
	return all
}

// by adds a series for each value of a label, in the order of these values.
func (f *families) by(id id, name string, counts map[string]uint64) {
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		f.count(id, counts[value], label(name, value))
	}
}
