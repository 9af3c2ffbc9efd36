//go:build notrace

package tracing

import (
	"strings"
	"testing"
)

func TestABuildWithoutTracingSaysSo(t *testing.T) {
	if _, err := New(Config{Endpoint: "http://127.0.0.1:4318"}); err == nil || !strings.Contains(err.Error(), "notrace") {
		t.Errorf("got %v", err)
	}
	if tracer, err := New(Config{}); tracer != nil || err != nil {
		t.Errorf("switched off: %v, %v", tracer, err)
	}
}
