package metrics

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/faisca/fila/internal/yield"
)

// Format is a form in which metrics are written. Its text is what FILA.METRICS calls it.
type Format string

// The formats there are.
const (
	Text        Format = "TEXT"        // Prometheus' own text, for people as well
	OpenMetrics Format = "OPENMETRICS" // text that ends in # EOF
	Protobuf    Format = "PROTOBUF"    // delimited messages with native histograms
)

// Negotiate returns the format that a scraper prefers by the Accept header of its request, Text
// if it names none of them, and the content type of the answer.
func Negotiate(h http.Header) (f Format, contentType string) {
	chosen := expfmt.NegotiateAccept(h, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtProtoDelim, expfmt.FmtText)
	switch chosen.FormatType() {
	case expfmt.TypeOpenMetrics:
		f = OpenMetrics
	case expfmt.TypeProtoDelim:
		f = Protobuf
	default:
		f = Text
	}
	return f, f.ContentType()
}

// ContentType is that of a text in the format.
func (f Format) ContentType() string { return string(f.expfmt()) }

func (f Format) expfmt() expfmt.Format {
	switch f {
	case OpenMetrics:
		return expfmt.FmtOpenMetrics_1_0_0
	case Protobuf:
		return expfmt.FmtProtoDelim
	default:
		return expfmt.FmtText
	}
}

// buffer is a buffer for a long text, which lets others run as it grows.
type buffer struct {
	bytes.Buffer
	breaks *yield.Breaks
	paused int // length at the last break
}

// bufferBreak is how many bytes a buffer takes without reading the clock.
const bufferBreak = 4 << 10

func (b *buffer) pause() {
	if b.Len() >= b.paused+bufferBreak {
		b.paused = b.Len()
		b.breaks.Take()
	}
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.pause()
	return b.Buffer.Write(p)
}

// WriteString implements io.StringWriter.
func (b *buffer) WriteString(s string) (int, error) {
	b.pause()
	return b.Buffer.WriteString(s)
}

// familiesOfCounters returns the names that the families of counters have in OpenMetrics: without _total. Of two
// families that are named the same there, the counter stays: go_memstats_alloc_bytes is left out, whose value
// go_memstats_heap_alloc_bytes has as well.
func familiesOfCounters(all []*dto.MetricFamily) map[string]bool {
	names := map[string]bool{}
	for _, of := range all {
		if of.GetType() == dto.MetricType_COUNTER {
			names[strings.TrimSuffix(of.GetName(), "_total")] = true
		}
	}
	return names
}

// encode writes metrics in a format.
func encode(all []*dto.MetricFamily, f Format, breaks *yield.Breaks) ([]byte, error) {
	b := buffer{breaks: breaks}
	e := expfmt.NewEncoder(&b, f.expfmt())
	var counters map[string]bool // by the name of their family in OpenMetrics
	if f == OpenMetrics {
		counters = familiesOfCounters(all)
	}
	for _, of := range all {
		if of.GetType() != dto.MetricType_COUNTER && counters[of.GetName()] {
			continue
		}
		if err := e.Encode(of); err != nil {
			return nil, fmt.Errorf("metric %s: %w", of.GetName(), err)
		}
	}
	if c, ok := e.(io.Closer); ok {
		if err := c.Close(); err != nil {
			return nil, fmt.Errorf("end of the metrics: %w", err)
		}
	}
	return b.Bytes(), nil
}
