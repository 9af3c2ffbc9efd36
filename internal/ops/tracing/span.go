package tracing

import (
	"time"

	"github.com/faisca/fila/internal/ops/nametext"
)

// span is one span, and those within it. Those of the protocol are in otlp.go.
type span struct {
	operation    string // its name is this and the queue
	queue        string
	server       bool // of kind server; else internal
	began, ended time.Time
	parent       *Context // nil: a trace of its own, or within another span
	link         *Context // nil: none
	failure      string   // an error with this text; "": none
	attributes   []pair
	within       []span
}

func (s *span) name() string { return s.operation + " " + text(s.queue) }

// count returns how many spans it is, with those within it.
func (s *span) count() int {
	n := 1
	for i := range s.within {
		n += s.within[i].count()
	}
	return n
}

// pair is an attribute: a name and a text or a number. It is no interface, which would
// allocate.
type pair struct {
	name    string
	text    string
	number  int64
	numeric bool
}

func str(name, value string) pair       { return pair{name: name, text: value} }
func num(name string, value int64) pair { return pair{name: name, number: value, numeric: true} }

// The operations, which name the spans.
const (
	opEnqueue = "enqueue"
	opDeliver = "deliver"
	opWait    = "wait"
	opLease   = "lease"
)

// The attributes.
const (
	attrSystem    = "messaging.system"
	attrOperation = "messaging.operation.name"
	attrType      = "messaging.operation.type"
	attrQueue     = "messaging.destination.name"
	attrMessage   = "messaging.message.id"
	attrBody      = "messaging.message.body.size"
	attrClient    = "messaging.client.id"
	attrKey       = "fila.key"
	attrPriority  = "fila.priority"
	attrAttempt   = "fila.attempt"
	attrDelivered = "fila.deliveries"
	attrOutcome   = "fila.outcome"
	attrReadyAt   = "fila.ready_at"
	attrDLQ       = "fila.dlq"
	attrReason    = "fila.reason"
)

// System is the value of messaging.system.
const System = "fila"

// operationType returns the value of messaging.operation.type; "": the conventions have
// none for the operation.
func operationType(operation string) string {
	switch operation {
	case opEnqueue:
		return "send"
	case opDeliver:
		return "receive"
	case opLease:
		return "process"
	default:
		return ""
	}
}

// attributesOf begins the attributes of a span with those that each has. message is the id of
// the message; "": it has none.
func attributesOf(operation, queue, message string) []pair {
	list := make([]pair, 0, 12)
	list = append(list, str(attrSystem, System), str(attrOperation, operation), str(attrQueue, text(queue)))
	if message != "" {
		list = append(list, str(attrMessage, message))
	}
	if kind := operationType(operation); kind != "" {
		list = append(list, str(attrType, kind))
	}
	return list
}

// textMax bounds a text in a span, in bytes.
const textMax = 1 << 10

// text returns what a span may carry of a name or an error text.
func text(s string) string { return nametext.Of(s, textMax) }
