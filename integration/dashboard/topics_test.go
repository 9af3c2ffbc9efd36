package dashboard

import (
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// bindings returns the bindings of a topic, each as its queue and its headers.
func bindings(b *broker, topic string) string {
	b.t.Helper()
	m, _ := b.do("FILA.TOPIC", "INFO", topic).(client.Map)
	var all []string
	for _, one := range client.Maps(m.Get("bindings")) {
		all = append(all, strings.Join(append([]string{one.Text("queue")}, client.Texts(one.Get("headers"))...), " "))
	}
	return strings.Join(all, ", ")
}

// A queue is bound, its headers are changed, a message is published and the queue is unbound; each dialog
// shows the line that it sends.
func TestTopicsAreBoundAndPublishedToFromTheDashboard(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "billing")
	b.do("FILA.QUEUE", "CREATE", "shipping")
	x := open(t, browse(t), b.url, "#/topics")
	x.drawn()
	x.wait("There is no topic yet.")
	x.click("button", "Bind a queue")
	x.fill("textbox", "Topic", "order.placed")
	x.fill("textbox", "Queue", "shipping")
	x.fill("textbox", "Headers", "kind: goods\ncountry: d?")
	x.wait("FILA.TOPIC BIND order.placed shipping HEADER kind goods HEADER country d?")
	x.click("button", "Bind")
	x.wait("The queue is bound.")
	if got := bindings(b, "order.placed"); got != "shipping kind goods country d?" {
		t.Errorf("bound is %q", got)
	}
	x.click("link", "order.placed")
	x.wait("1 binding")
	x.click("button", "Bind a queue")
	x.fill("textbox", "Queue", "billing")
	x.wait("FILA.TOPIC BIND order.placed billing")
	x.click("button", "Bind")
	x.wait("every message")

	x.click("button", "Publish")
	x.fill("textbox", "Payload", "o-17")
	x.wait("FILA.PUBLISH order.placed o-17")
	x.click("button", "Publish")
	x.wait("Published to billing.")
	b.do("FILA.TOPIC", "UNBIND", "order.placed", "billing")
	x.gone("every message")
	x.click("button", "Publish")
	x.click("button", "Publish")
	x.wait("it matches no binding, so no queue has got it.")
	x.until("the counts are shown", `() => [...document.querySelectorAll(".figure")].map((f) => f.innerText.replace(/\s+/g, " ")).join() === "Queues 1,Published 2,Unmatched 1"`)

	x.click("button", "Change the headers of shipping at order.placed")
	x.wait("FILA.TOPIC BIND order.placed shipping HEADER kind goods HEADER country d?")
	x.fill("textbox", "Headers", "kind: g*")
	x.wait("FILA.TOPIC BIND order.placed shipping HEADER kind g*")
	x.click("button", "Set headers")
	x.wait("The headers are set.")
	if got := bindings(b, "order.placed"); got != "shipping kind g*" {
		t.Errorf("bound is %q", got)
	}

	// The page of the queue has the same from its side.
	x.visit("#/queues/shipping/topics")
	x.drawn()
	x.find("link", "order.placed")
	x.click("button", "Bind to a topic")
	x.fill("textbox", "Topic", "order.paid")
	x.wait("FILA.TOPIC BIND order.paid shipping")
	x.click("button", "Bind")
	x.find("link", "order.paid")
	x.click("button", "Unbind shipping from order.placed")
	x.wait("FILA.TOPIC UNBIND order.placed shipping")
	x.fill("textbox", "Type shipping to confirm", "shipping")
	x.click("button", "Unbind")
	x.wait("The queue is unbound.")
	x.gone("order.placed")
	if got := bindings(b, "order.placed") + bindings(b, "order.paid"); got != "shipping" {
		t.Errorf("bound is %q", got)
	}
	x.visit("#/queues/shipping/settings")
	x.wait("bound to 1")
	x.wantQuiet()
}

// Headers that cannot be typed stay as they are while another line is changed.
func TestBytesOfABindingAreKept(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "q")
	b.do("FILA.TOPIC", "BIND", "t\xff", "q", "HEADER", "h\xfe", "\xfd", "HEADER", "kind", "a")
	x := open(t, browse(t), b.url, "#/topics")
	x.drawn()
	x.click("link", `t\xff`)
	x.wait(`h\xfe: \xfd`)
	x.click("button", `Change the headers of q at t\xff`)
	x.fill("textbox", "Headers", "h\\xfe: \\xfd\nkind: b")
	x.wait(`FILA.TOPIC BIND "t\xff" q HEADER "h\xfe" "\xfd" HEADER kind b`)
	x.click("button", "Set headers")
	x.wait("The headers are set.")
	if got := bindings(b, "t\xff"); got != "q h\xfe \xfd kind b" {
		t.Errorf("bound is %q", got)
	}
	x.wantQuiet()
}

// To bind takes rights to the topic and to the queue; the one that is missing is named.
func TestTheRightsToATopicAndToAQueueAreNamed(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t, "user shop on >pohs ~order.* %R~* &* +@all\n")...)
	b.do("FILA.QUEUE", "CREATE", "billing")
	b.do("FILA.TOPIC", "BIND", "order.placed", "billing")
	b.do("FILA.TOPIC", "BIND", "customer.changed", "billing")
	x := open(t, browse(t), b.url, "#/")
	x.login("shop", "pohs")
	x.visit("#/topics/order.placed")
	x.drawn()
	reasons, enabled := x.disabled()
	if reasons["Unbind"] != "needs the right to produce to billing" || reasons["Change"] != "needs the right to produce to billing" || strings.Join(enabled, ",") != "Publish,Bind a queue" {
		t.Errorf("disabled are %q, enabled %q", reasons, enabled)
	}
	x.visit("#/topics/customer.changed")
	x.drawn()
	reasons, enabled = x.disabled()
	if reasons["Unbind"] != "needs the right to produce to customer.changed" || reasons["Publish"] != "needs the right to produce to customer.changed" || len(enabled) != 0 {
		t.Errorf("disabled are %q, enabled %q", reasons, enabled)
	}
	x.wantQuiet()
}

// A key of an ordered queue says which message it waits for, and until when.
func TestAKeyOfAnOrderedQueueSaysWhatItWaitsFor(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	x := open(t, browse(t), b.url, "#/")
	x.drawn()
	x.click("button", "New queue")
	x.fill("textbox", "Name", "changes")
	x.click("checkbox", "Ordered: one message of a fairness key at a time")
	x.wait("FILA.QUEUE CREATE changes ORDERED ON")
	x.click("button", "New queue")
	x.wait("The queue is made.")
	b.enqueue(2, "changes", "x", "KEY", "customer-17")
	lease, _ := b.do("FILA.LEASE", "changes", "VISIBILITY", "3600000").([]any)
	first, _ := lease[0].([]any)
	receipt := client.Text(first[0])
	id, _, _ := strings.Cut(receipt, ":")
	if m, _ := b.do("FILA.KEY", "GET", "changes", "customer-17").(client.Map); m == nil {
		t.Fatal("there is no such key")
	}
	x.visit("#/queues/changes")
	x.wait("waits for " + id + ", which is leased until")
	x.until("the state has a tone, and the queue says that it is ordered", `() => document.querySelector("tbody .badge.wait")?.innerText === "ordered" && document.querySelector("header .badge.quiet")?.innerText === "ordered"`)
	x.click("link", "customer-17")
	x.wait("It waits for " + id)
	x.wait("The next message of the key goes out when that one has ended.")
	b.do("FILA.NACK", "changes", receipt, "DELAY", "3600000")
	x.wait("which is tried again at")
	x.click("link", id)
	x.wait("delayed")
	x.visit("#/queues/changes/settings")
	x.wait("Ordered: one message of a key at a time")
	x.wait("How long results of acks are kept")
	x.until("both settings are shown", `() => [...document.querySelectorAll(".facts > div")].map((f) => f.innerText.replace(/\s+/g, " ")).filter((f) => /^(Ordered|How long results)/.test(f)).join() === "Ordered: one message of a key at a time on,How long results of acks are kept 1h"`)
	x.wantQuiet()
}
