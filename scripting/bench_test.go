package scripting

import (
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

const tenantScript = `
function on_enqueue(msg)
  local tenant = msg.headers["tenant"] or "unknown"
  return {
    fairness_key = tenant,
    weight = tonumber(fila.get("weight." .. tenant)) or 1,
    throttle_keys = { "tenant:" .. tenant },
  }
end
`

func benchMessage() *engine.HookMessage {
	h := func(name, value string) engine.Header { return engine.Header{Name: []byte(name), Value: []byte(value)} }
	return &engine.HookMessage{
		Queue: "orders", PayloadSize: 256, Key: engine.DefaultKey, Weight: 1,
		Headers: []engine.Header{h("content-type", "application/json"), h("tenant", "acme"), h("trace", "7f3a")},
	}
}

func benchSettings(key string) (string, bool) {
	if key == "weight.acme" {
		return "3", true
	}
	return "", false
}

// BenchmarkTenantHook runs a hook as an enqueue does, with both budgets on and
// the breaker and the counts around it.
func BenchmarkTenantHook(b *testing.B) {
	hook := load(b, sandbox(b), engine.HookEnqueue, tenantScript)
	msg := benchMessage()
	now := time.Now()
	times := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if _, err := hook.OnEnqueue(now, msg, benchSettings); err != nil {
			b.Fatal(err)
		}
		if len(times) < cap(times) {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}
