//go:build notrace

package tracing

import "errors"

// newSink refuses: this build has no OpenTelemetry.
func newSink(*Config, *counters) (sink, error) {
	return nil, errors.New("this binary was built without tracing (build tag notrace): leave tracing.endpoint empty")
}
