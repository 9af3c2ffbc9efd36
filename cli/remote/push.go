package remote

import (
	"time"

	"github.com/faisca/fila/cli/push"
)

// The defaults of fila push.
const (
	pushConcurrency = 10
	pushTimeout     = 30 * time.Second
)

func pushRows() []row {
	return []row{{
		name: "push", args: "QUEUE URL", short: "Deliver the messages of a queue by HTTP",
		long: `Leases messages and sends each as the body of a POST to URL. Headers say what it is:
Fila-Queue, Fila-Key (both percent-encoded), Fila-Attempt, Fila-Deliveries,
Fila-Enqueued-At, Fila-Header-NAME for each header of the message; its Content-Type,
Traceparent and Tracestate are those of the request. With --secret-file requests are
signed as Standard Webhooks describes (Webhook-Id, Webhook-Timestamp, Webhook-Signature).

An answer of 2xx acks the message, 410 makes it dead, anything else nacks it, with the
status and the first line of the answer as its error. 429 or 503 with Retry-After delays
the message by that; with --hold it holds that throttle instead, which messages must
name: then no message that names it is sent before. Redirects are not followed.

Addresses that are not public are refused, also when a name leads to one, unless
--private is given. Proxies of the environment are not used. A lease is extended until
its request has ended; a message may be sent twice, with the same Webhook-Id. Signals
and an absent broker are treated as by fila work.`,
		run: (*call).deliver,
		options: append(
			workerOptions("have `n` requests under way at a time; 10 unless it is given"),
			option{"timeout", "", millis, "the `duration` in which a request must be answered; 30s unless it is given"},
			option{"secret-file", "", text, "`file` with secrets, one a line, as whsec_ and 24 to 64 bytes in base64; each signs, so that they can be rotated; read again when it has changed"},
			option{"ca-file", "", text, "`file` with the certificates in PEM that are trusted in place of the system's"},
			option{"private", "", yes, "send to addresses that are not public as well"},
			option{"hold", "", text, "the `throttle` to hold when the receiver says Retry-After; {key} in it is the key of the message"},
		),
		examples: []string{
			"fila push orders https://example.com/hooks/orders",
			"fila push mails https://api.example.com/send --concurrency 50 --hold provider:mail",
		},
	}}
}

// deliver sends a request for each message.
func (c *call) deliver() error {
	o := push.Options{
		URL: c.arg("URL"), Timeout: pushTimeout, SecretFile: c.text("secret-file"), CAFile: c.text("ca-file"), Private: c.is("private"), Hold: c.text("hold"),
	}
	if c.given("timeout") {
		o.Timeout = c.duration("timeout")
	}
	if o.Timeout < time.Millisecond {
		return usagef("--timeout must be at least 1ms, not %s", o.Timeout)
	}
	t, err := push.New(o, concurrencyMax)
	if err != nil {
		return usagef("%w", err)
	}
	return c.works(t, pushConcurrency)
}
