package tracing

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/faisca/fila/engine"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	sampled = "00-" + traceID + "-" + spanID + "-01"
)

func TestAHeaderIsReadStrictly(t *testing.T) {
	for value, want := range map[string]string{
		sampled: "sampled",
		strings.Replace(sampled, "-01", "-03", 1):      "sampled", // the flag random
		strings.Replace(sampled, "-01", "-00", 1):      "valid",
		strings.Replace(sampled, "-01", "-02", 1):      "valid",
		"01" + sampled[2:]:                             "sampled", // a later version
		"01" + sampled[2:] + "-more":                   "sampled",
		"":                                             "",
		sampled[:54]:                                   "",
		sampled + "-":                                  "",
		sampled + "0":                                  "",
		"01" + sampled[2:] + "more":                    "",
		"ff" + sampled[2:]:                             "",
		"0" + sampled:                                  "",
		strings.ToUpper(sampled):                       "",
		strings.Replace(sampled, "-", "_", 1):          "",
		strings.Replace(sampled, "4bf9", "4bg9", 1):    "",
		strings.Replace(sampled, "-01", "-0x", 1):      "",
		"00-" + strings.Repeat("0", 32) + sampled[35:]: "",
		sampled[:36] + strings.Repeat("0", 16) + "-01": "",
	} {
		_, isSampled, valid := parse([]byte(value))
		got := ""
		switch {
		case isSampled && valid:
			got = "sampled"
		case valid:
			got = "valid"
		}
		if got != want {
			t.Errorf("%q is %q, want %q", value, got, want)
		}
	}
	c, _, _ := parse([]byte(sampled))
	if hex.EncodeToString(c.Trace[:]) != traceID || hex.EncodeToString(c.Span[:]) != spanID {
		t.Errorf("got %x, %x", c.Trace, c.Span)
	}
}

func header(name, value string) engine.Header {
	return engine.Header{Name: []byte(name), Value: []byte(value)}
}

func TestTheContextIsThatOfTheOnlyHeader(t *testing.T) {
	for _, x := range []struct {
		headers []engine.Header
		want    bool
	}{
		{nil, false},
		{[]engine.Header{header("trace", sampled)}, false},
		{[]engine.Header{header("Traceparent", sampled)}, false},
		{[]engine.Header{header("a", "b"), header(Header, sampled), header("tracestate", "x=y")}, true},
		{[]engine.Header{header(Header, sampled[:54]+"0")}, false},
		{[]engine.Header{header(Header, sampled), header(Header, sampled)}, false},
		{[]engine.Header{header(Header, ""), header(Header, sampled)}, false},
	} {
		if c, got := contextOf(x.headers); got != x.want || !got && c != (Context{}) {
			t.Errorf("%q: %v, want %v", x.headers, got, x.want)
		}
	}
}

// FuzzTraceparent compares with the parser of OpenTelemetry, which takes no reserved flags in
// version 00, and of later versions what is behind the flags.
func FuzzTraceparent(f *testing.F) {
	for _, seed := range []string{sampled, "", "ff" + sampled[2:], "01" + sampled[2:] + "-more", strings.Replace(sampled, "-01", "-ff", 1)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		c, isSampled, valid := parse(value)
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{Header: string(value)}))
		if theirs.IsValid() && !valid && len(value) == contextBytes {
			t.Fatalf("%q is valid for OpenTelemetry", value)
		}
		if !theirs.IsValid() {
			return
		}
		if valid && (theirs.TraceID() != trace.TraceID(c.Trace) || theirs.SpanID() != trace.SpanID(c.Span) || theirs.IsSampled() != isSampled) {
			t.Fatalf("%q: %x %x %v, OpenTelemetry says %v %v %v", value, c.Trace, c.Span, isSampled, theirs.TraceID(), theirs.SpanID(), theirs.IsSampled())
		}
	})
}
