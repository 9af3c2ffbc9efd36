// Package tracing makes OpenTelemetry spans of what happens to messages, for messages whose
// producer has asked for it: with the header `traceparent`, and its flag `sampled`. Such a
// header is the context in which the message was created; the broker never adds or changes
// one.
//
//	                 read       durable          ready        leased           ended
//	producer's span ──┴─ enqueue ─┘                │            │                │
//	        └─ ─ ─ ─ ─ ─ ─ ─ link ─ ─ ─ ─ ─ ─ ─ ─▶ └───────────── deliver ───────┘
//	                                               └── wait ────┴─── lease ──────┘
//
// All of it happens on connections and on the goroutine that dispatches events; the loop of
// the engine knows nothing of it:
//
//  1. A connection that parses an enqueue asks Enqueue for the context in its headers, and
//     calls Enqueued when the message is durable.
//  2. A connection that renders a lease calls Leased for each message. A sampled one goes
//     into the table of deliveries, under its receipt.
//  3. Take removes the delivery from the table when it was acked or released, and Ended makes
//     its spans. A failure, by nack or by expiry, comes as an event of the engine (Observe).
//     Undelivered removes a delivery that the client never got, without spans.
//
// A delivery that ends in no such way, as by a purge or a restart of the broker, has no
// spans. The table is bounded, so is what waits for the collector, and neither is ever
// waited for: what does not fit is dropped and counted.
//
// Only otlp.go knows OpenTelemetry: its exporter and its description of the service. The
// build tag `notrace` leaves it out.
package tracing
