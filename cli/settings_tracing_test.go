package cli

import (
	"strings"
	"testing"
)

func TestTheEndpointOfTracingIsAURL(t *testing.T) {
	for _, s := range []string{"", "http://127.0.0.1:4318", "https://collector.example.com/otlp/v1/traces", "http://[::1]:4318/"} {
		if err := checkEndpoint(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"127.0.0.1:4318", "grpc://collector:4317", "http://", "http://:4318", "http://me:secret@collector", "http://collector?x=y", "http://collector#x", "http://a b"} {
		if err := checkEndpoint(s); err == nil || !strings.Contains(err.Error(), "must be a URL") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestAFractionIsFromZeroToOne(t *testing.T) {
	var v float64
	f := fraction{to: &v, def: 1}
	if f.reset(); f.String() != "1" {
		t.Errorf("the default is %s", f)
	}
	for raw, want := range map[any]string{0.25: "0.25", int64(0): "0", int64(1): "1", 1e-9: "0.000000001"} {
		if err := f.set(raw); err != nil || f.literal() != want {
			t.Errorf("%v: %s, %v", raw, f, err)
		}
		if err := f.parse(want); err != nil || f.literal() != want {
			t.Errorf("%q: %s, %v", want, f, err)
		}
	}
	v = 0.5
	for _, raw := range []any{"0.5", -0.1, 1.1, int64(2), true} {
		if err := f.set(raw); err == nil || !strings.Contains(err.Error(), "from 0 to 1") {
			t.Errorf("%v: %v", raw, err)
		}
	}
	for _, s := range []string{"", "half", "NaN", "Inf", "1.01", "-1"} {
		if err := f.parse(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	if v != 0.5 {
		t.Errorf("a refused value has changed it to %v", v)
	}
}
