package tracing

import (
	"fmt"
	"strings"
)

// Operation describes a kind of span for docs/how-to/tracing.md.
type Operation struct {
	Name, Time, Kind, Belongs string
}

// Operations are the kinds of spans.
func Operations() []Operation {
	return []Operation{
		{opEnqueue, "from the command's being read until the message is durable", "server", "a child of the header's span: the producer waits for it"},
		{
			opDeliver, "from the message's being ready to the end of its lease", "internal",
			"a trace of its own, linked to the header's span; with `tracing.relation` at `parent` a child of that span, unless the message is older than an hour",
		},
		{opWait, "from ready to leased", "internal", "a child of `deliver`"},
		{opLease, "from leased to acked, nacked, expired or released", "internal", "a child of `deliver`; an error, with its text, if the delivery has failed"},
	}
}

// Attribute describes an attribute for docs/how-to/tracing.md.
type Attribute struct {
	Name, Type string
	On         []string // the operations whose spans may have it
	Text       string
}

// Attributes are the attributes that spans have.
func Attributes() []Attribute {
	all := []string{opEnqueue, opDeliver, opWait, opLease}
	message := []string{opEnqueue, opDeliver}
	return []Attribute{
		{attrSystem, "string", all, "`" + System + "`"},
		{attrOperation, "string", all, "`enqueue`, `deliver`, `wait` or `lease`"},
		{attrType, "string", []string{opEnqueue, opDeliver, opLease}, "what the conventions call it: `send`, `receive`, `process`"},
		{attrQueue, "string", all, "the queue"},
		{attrMessage, "string", all, "the id of the message; none where it was refused"},
		{attrBody, "int", message, "bytes of the payload"},
		{attrClient, "string", []string{opLease}, "`CONSUMER` of the lease, if it named one"},
		{attrKey, "string", message, "the fairness key"},
		{attrPriority, "int", message, "the priority"},
		{attrAttempt, "int", []string{opDeliver}, "1 plus the failures before this delivery"},
		{attrDelivered, "int", []string{opDeliver}, "deliveries so far, this one included"},
		{attrOutcome, "string", []string{opDeliver, opLease}, "how the delivery ended: `acked`, `nacked`, `expired` or `released`"},
		{attrReadyAt, "int", []string{opDeliver}, "after a failure: when the message is ready again, in Unix milliseconds"},
		{attrReason, "string", []string{opDeliver}, "why the message is dead: `attempts`, `nack`, `on_failure` or `ttl`"},
		{attrDLQ, "string", []string{opDeliver}, "the dead-letter queue that has it; none where it was dropped"},
	}
}

// Markdown returns the tables of spans and attributes for docs/how-to/tracing.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| span | time | kind | belongs to |\n|---|---|---|---|\n")
	for _, o := range Operations() {
		fmt.Fprintf(&b, "| `%s QUEUE` | %s | %s | %s |\n", o.Name, o.Time, o.Kind, o.Belongs)
	}
	b.WriteString("\n| attribute | type | on | what it is |\n|---|---|---|---|\n")
	for _, a := range Attributes() {
		on := "all"
		if len(a.On) < len(Operations()) {
			on = "`" + strings.Join(a.On, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.Name, a.Type, on, a.Text)
	}
	return b.String()
}
