package cli

import (
	"fmt"
	"net/url"
	"strconv"
)

// What tracing.relation may be.
const (
	RelationLink   = "link"
	RelationParent = "parent"
)

// tracingSettings are about the spans that the broker makes of messages.
func tracingSettings(c *Tracing) []setting {
	return []setting{
		entry("tracing.endpoint", text{to: &c.Endpoint, check: checkEndpoint, of: "URL", says: "empty, or a URL as in http://127.0.0.1:4318"},
			"The OpenTelemetry collector that takes spans, OTLP over HTTP; `/v1/traces` is added to a URL without a path. Empty: no spans. "+
				"They are made for messages whose header `traceparent` says sampled, see [tracing](../how-to/tracing.md)."),
		entry("tracing.ratio", fraction{to: &c.Ratio, def: 1},
			"The share of those messages that have spans. It is decided by the id of the trace, as OpenTelemetry does."),
		entry("tracing.relation", text{to: &c.Relation, def: RelationLink, choices: []string{RelationLink, RelationParent}},
			"How a delivery belongs to the span in the header. `link`: it is a trace of its own, with a link to that span. `parent`: it is a child of "+
				"that span, unless the message is older than an hour."),
	}
}

// checkEndpoint checks the URL of a collector.
func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("must be a URL as in http://127.0.0.1:4318, without user and query, not %q", s)
	}
	return nil
}

// fraction is a setting from 0 to 1.
type fraction struct {
	to  *float64
	def float64
}

func (f fraction) reset() { *f.to = f.def }

func (f fraction) set(raw any) error {
	switch v := raw.(type) {
	case float64:
		return f.take(v, raw)
	case int64:
		return f.take(float64(v), raw)
	default:
		return fmt.Errorf("must be %s, not %#v", f.bounds(), raw)
	}
}

func (f fraction) parse(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("must be %s, not %q", f.bounds(), s)
	}
	return f.take(v, s)
}

func (f fraction) take(v float64, said any) error {
	if !(v >= 0 && v <= 1) { // NaN is neither
		return fmt.Errorf("must be %s, not %v", f.bounds(), said)
	}
	*f.to = v
	return nil
}

func (f fraction) String() string  { return strconv.FormatFloat(*f.to, 'f', -1, 64) }
func (f fraction) literal() string { return f.String() }
func (f fraction) kind() string    { return "fraction" }
func (f fraction) bounds() string  { return "a number from 0 to 1" }
