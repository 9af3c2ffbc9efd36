package dashboard

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/input"
	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// Charts begin with what the broker has done before the page was opened, of all queues and of each.
func TestChartsBeginBeforeThePageWasOpened(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(300, "orders", "x")
	moments := func() int { return len(client.Maps(b.do("FILA.HISTORY", "orders"))) }
	testkit.Eventually(t, "the broker has kept something", func() bool {
		all := client.Maps(b.do("FILA.HISTORY", "orders"))
		return len(all) > 1 && all[len(all)-1].Int("enqueued") == 300
	})
	x := open(t, browse(t), b.url, "#/queues/orders")
	for _, hash := range []string{"#/queues/orders", "#/"} {
		x.visit(hash)
		x.wait("Live")
		kept := moments()
		x.until("the table has what was before", `(kept) => {
			const rows = document.querySelectorAll(".chart")[1].querySelectorAll("tbody tr");
			return rows.length >= kept && [...rows].some((r) => r.children[1].textContent === "0") && [...rows].some((r) => r.children[1].textContent === "300");
		}`, kept)
	}
}

// A page that was left for so long that its charts have a gap asks the broker again for what it lacks, and
// shows each moment once: two at the same time would have no rate, and the chart no scale.
func TestChartsFillTheGapOfAPageThatWasLeft(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(300, "orders", "x")
	moments := func() int { return len(client.Maps(b.do("FILA.HISTORY", "orders"))) }
	testkit.Eventually(t, "the broker has kept something", func() bool { return moments() > 1 })
	x := open(t, browse(t), b.url, "#/queues/orders")
	x.until("the table has what was before", `() => document.querySelector(".chart").querySelectorAll("tbody tr").length > 1`)
	leave := func(hash string) {
		if _, err := x.Eval(`(hash) => { location.hash = hash; }`, hash); err != nil {
			t.Fatal(err)
		}
	}
	leave("#/config")
	kept := moments()
	testkit.Eventually(t, "more than 15 s have gone by", func() bool { return moments() >= kept+3 })
	kept = moments()
	leave("#/queues/orders")
	x.wait("Live")
	x.until("the table has what was meanwhile", `(kept) => document.querySelectorAll(".chart")[1].querySelectorAll("tbody tr").length > kept`, kept)
	r, err := x.Eval(`() => [...document.querySelector(".chart").querySelectorAll("tbody tr")].map((r) => [...r.children].map((c) => c.textContent).join(" "))`)
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, row := range r.Value.Arr() {
		if strings.Contains(row.Str(), "NaN") {
			t.Errorf("a rate is no number: %s", row.Str())
		}
		if !strings.Contains(row.Str(), "–") {
			known++
		}
	}
	if known < kept-1 {
		t.Errorf("%d rates are known of %d moments: %v", known, kept, r.Value.Arr())
	}
}

// drag drags the mouse over a part of an element.
func (x *tab) drag(selector string, from, to float64) {
	x.t.Helper()
	r, err := x.Eval(`(selector) => { const r = document.querySelector(selector).getBoundingClientRect(); return [r.left, r.top + r.height / 2, r.width]; }`, selector)
	if err != nil {
		x.t.Fatal(err)
	}
	box := r.Value.Arr()
	left, y, width := box[0].Num(), box[1].Num(), box[2].Num()
	mouse := func(kind proto.InputDispatchMouseEventType, part float64) {
		e := proto.InputDispatchMouseEvent{Type: kind, X: left + part*width, Y: y, Button: proto.InputMouseButtonLeft, ClickCount: 1}
		if err := e.Call(x); err != nil {
			x.t.Fatal(err)
		}
	}
	mouse(proto.InputDispatchMouseEventTypeMouseMoved, from)
	mouse(proto.InputDispatchMouseEventTypeMousePressed, from)
	for i := range 5 {
		mouse(proto.InputDispatchMouseEventTypeMouseMoved, from+(to-from)*float64(i+1)/5)
	}
	mouse(proto.InputDispatchMouseEventTypeMouseReleased, to)
}

// A chart zooms where it is dragged over, together with the others, and shows all again after a
// double click; and the same by keyboard.
func TestChartsZoom(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(10, "orders", "x")
	x := open(t, browse(t), b.url, "#/queues/orders")
	x.wait("Live")
	rows := func() int {
		r, err := x.Eval(`() => document.querySelectorAll(".chart")[1]?.querySelectorAll("tbody tr").length ?? 0`)
		if err != nil {
			t.Fatal(err)
		}
		return r.Value.Int()
	}
	testkit.Eventually(t, "there are some figures", func() bool { return rows() > 4 })
	x.drag(".u-over", 0.85, 0.99)
	x.wait("Show all")
	if n := rows(); n == 0 {
		t.Error("the table of the other chart shows nothing")
	}
	x.shoot("zoomed")
	if err := x.MustElement(".u-over").Click(proto.InputMouseButtonLeft, 2); err != nil {
		t.Fatal(err)
	}
	x.gone("Show all")

	if err := x.find("group", "Chart: Backlog").Focus(); err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		r, err := x.Eval(`() => document.querySelector(".zoomed [role=status]")?.textContent ?? ""`)
		if err != nil {
			t.Fatal(err)
		}
		return r.Value.Str()
	}
	changes := func(what string, keys ...input.Key) {
		t.Helper()
		before := shown()
		x.press(keys...)
		x.until(what, `(before) => (document.querySelector(".zoomed [role=status]")?.textContent ?? "") !== before`, before)
	}
	changes("plus zooms", input.Equal)
	changes("an arrow moves", input.ArrowLeft)
	changes("another one moves back", input.ArrowRight)
	changes("plus zooms further", input.Equal)
	x.press(input.Digit0)
	x.gone("Show all")
	changes("plus zooms again", input.Equal)
	x.click("button", "Show all")
	x.gone("Show all")
}

// The clients that wait for a queue are listed in their order, with their names, and the consumers
// that hold leases.
func TestTheConsumersOfAQueueAreListed(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(3, "orders", "x")
	b.do("FILA.LEASE", "orders", "COUNT", "2", "CONSUMER", "holder")
	b.do("FILA.LEASE", "orders", "CONSUMER", "other")
	for i := range 3 {
		c := b.dial("", "")
		if _, err := c.Do(t.Context(), "CLIENT", "SETNAME", fmt.Sprint("app-", i)); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = c.Do(t.Context(), "FILA.LEASE", "orders", "BLOCK", "0", "CONSUMER", fmt.Sprint("worker-", i))
		}()
		testkit.Eventually(t, "it waits", func() bool { return len(client.Maps(b.do("FILA.WAITERS", "orders").([]any)[1])) == i+3 })
	}
	x := open(t, browse(t), b.url, "#/queues/orders/consumers")
	x.wait("3 waiting clients")
	x.until("those that hold leases and those that wait are listed in the order in which they came", `() => [...document.querySelectorAll(".card")[0].querySelectorAll("tbody tr")].map((r) => [r.children[0].textContent, r.children[1].textContent, r.children[5].textContent].join()).join(" ") === "holder,2,– other,1,– worker-0,–,app-0 worker-1,–,app-1 worker-2,–,app-2"`)
	x.accessible(axe(t), "consumers")
	x.shoot("consumers")
	b.do("FILA.PURGE", "orders")
	b.enqueue(1, "orders", "x")
	x.wait("2 waiting clients")
}

// A change of weight is seen with the second event of live figures, which come each second, whatever
// the age of other figures: the fair shares are new, and the shares move.
func TestSharesMoveWithinTwoSecondsOfAChangeOfWeight(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{}, "--admin.figures_ms", "5000")
	b.do("FILA.QUEUE", "CREATE", "orders")
	b.enqueue(8000, "orders", "x", "KEY", "acme")
	b.enqueue(8000, "orders", "x", "KEY", "globex")
	b.work("", "", 2*time.Millisecond, "orders")
	x := open(t, browse(t), b.url, "#/config")
	var events atomic.Int64
	go x.EachEvent(func(*proto.NetworkEventSourceMessageReceived) { events.Add(1) })()
	x.visit("#/queues/orders")
	x.wait("acme")
	testkit.Eventually(t, "both have their half", func() bool {
		part, fair := x.share("acme")
		return part == "50 %" && fair == "50 %"
	})
	seen, began := events.Load(), time.Now()
	b.do("FILA.KEY", "SET", "orders", "acme", "WEIGHT", "4")
	testkit.Eventually(t, "the fair share is new, and the share moves", func() bool {
		part, fair := x.share("acme")
		return fair == "80 %" && part > "50 %"
	})
	took, n := time.Since(began), events.Load()-seen
	if most := int64(testkit.Slowed(2*time.Second, 20) / time.Second); n > most { // on a busy machine it is looked at later
		t.Errorf("it took %d events of live figures, want at most %d", n, most)
	}
	t.Logf("seen after %d events of live figures, %s", n, took.Round(time.Millisecond))
	testkit.Eventually(t, "the shares are those of FILA.KEYS", func() bool {
		agree := true
		for _, k := range client.Maps(b.do("FILA.KEYS", "orders", "BY", "DEPTH").([]any)[1]) {
			part, fair := x.share(k.Text("key"))
			agree = agree && part == percent(k.Float("share")) && fair == percent(k.Float("fair_share"))
		}
		return agree
	})
}
