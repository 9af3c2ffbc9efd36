package events

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/faisca/fila/engine"
)

// channelPrefix begins every channel of Fila's own. A channel is
// "fila:<queue>:<event>"; queue names may hold colons, so the event is what
// follows the last one.
const channelPrefix = "fila:"

func appendChannel(b []byte, ev *engine.Event) []byte {
	b = append(append(b, channelPrefix...), ev.Queue...)
	return append(append(b, ':'), ev.Kind.String()...)
}

// appendPayload appends an event as one JSON object: event, at and queue, then
// what its kind has. New fields are only ever added.
func appendPayload(b []byte, ev *engine.Event) []byte {
	b = append(b, '{')
	b = appendText(b, "event", ev.Kind.String())
	b = appendNumber(b, "at", ev.Time.UnixMilli())
	if ev.Kind == engine.EventLost {
		b = appendNumber(b, "count", int64(ev.Count))
		return append(b, '}')
	}
	if ev.Kind&(engine.EventBudgetLow|engine.EventBudgetEmpty) != 0 {
		b = appendText(b, "budget", ev.Budget)
		b = appendNumber(b, "balance", ev.Balance)
		return append(appendNumber(b, "available", ev.Available), '}')
	}
	b = appendText(b, "queue", ev.Queue)
	switch ev.Kind {
	case engine.EventEnqueued, engine.EventAcked:
		b = appendMessage(b, ev)
	case engine.EventFailed:
		b = appendMessage(b, ev)
		b = appendNumber(b, "attempt", int64(ev.Attempt))
		b = appendText(b, "error", ev.Error)
		b = appendNumber(b, "ready_at", ev.ReadyAt.UnixMilli())
	case engine.EventDead:
		b = appendMessage(b, ev)
		b = appendNumber(b, "attempt", int64(ev.Attempt))
		b = appendText(b, "error", ev.Error)
		b = appendText(b, "reason", ev.Reason)
		b = appendText(b, "dlq", ev.DLQ)
	case engine.EventProgress:
		b = appendMessage(b, ev)
		b = appendText(b, "progress", ev.Progress)
	case engine.EventBound, engine.EventUnbound:
		b = appendText(b, "topic", ev.Topic)
	case engine.EventBreaker:
		b = appendText(b, "hook", ev.Hook.String())
		b = appendText(b, "state", ev.State.String())
	default: // the queue says it all
	}
	return append(b, '}')
}

func appendMessage(b []byte, ev *engine.Event) []byte {
	return appendText(appendText(b, "id", ev.ID.String()), "key", ev.Key)
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(b, name), n, 10)
}

// eventTextMax bounds a text in an event: each subscriber gets a copy, and the message
// itself has all of it.
const eventTextMax = 1 << 10

// appendText appends a text field. One that is not UTF-8, as a binary key may be,
// cannot stand in JSON: it comes as "<name>_base64" instead.
func appendText(b []byte, name, text string) []byte {
	if !utf8.ValidString(text) {
		return appendText(b, name+"_base64", base64.StdEncoding.EncodeToString([]byte(text[:min(len(text), eventTextMax/2)])))
	}
	if len(text) > eventTextMax {
		cut := eventTextMax
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	quoted, err := json.Marshal(text)
	if err != nil { // a string always marshals
		panic(err)
	}
	return append(appendName(b, name), quoted...)
}

func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(strconv.AppendQuote(b, name), ':')
}
