package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/glob"
)

// add enqueues a message with headers.
func (w *world) add(req Enqueue) ID {
	w.t.Helper()
	if err := w.Prepare(&req); err != nil {
		w.t.Fatal(err)
	}
	var id ID
	w.must(func(tx *Tx) (err error) { id, err = tx.Enqueue(&req); return err })
	return id
}

// headers returns headers of names and values.
func headers(pairs ...string) (all []Header) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Header{Name: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return all
}

// die enqueues messages to a queue and dead-letters each with an error.
func (w *world) die(queue string, texts ...string) (ids []ID) {
	w.t.Helper()
	for _, text := range texts {
		w.enqueue(queue, "k", text)
		d := w.lease(queue, 1)[0]
		w.must(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: queue, Receipt: d.Receipt, Error: text, Delay: -1, Dead: true})
			return err
		})
		ids = append(ids, d.Receipt.ID)
		w.Advance(time.Millisecond)
	}
	return ids
}

// walk is what a walk through a queue has brought.
type walked struct {
	pages, empty int
	ids          []ID
}

// search walks through a queue and checks each page: it looks at no more than count messages,
// and spends no more of a turn than what it shows.
func (w *world) search(req Browse) (all walked) {
	w.t.Helper()
	for {
		var list []*View
		one := req
		w.must(func(tx *Tx) (err error) {
			found := 0
			if p := one.page; p != nil {
				if found = len(p.found); p.Looked > req.Count {
					w.t.Errorf("a page has looked at %d messages, want at most %d", p.Looked, req.Count)
				}
			}
			before := tx.core.tasks.budget.Spent
			req.Cursor, list, err = tx.Browse(&one)
			if spent := tx.core.tasks.budget.Spent - before; spent > found {
				w.t.Errorf("a page that has found %d messages has spent %d units", found, spent)
			}
			return err
		})
		for _, v := range list {
			all.ids = append(all.ids, v.ID)
		}
		all.pages++
		if len(list) == 0 {
			all.empty++
		}
		if req.Cursor == "" {
			return all
		}
		if all.pages == 100_000 {
			w.t.Fatal("the walk has no end")
		}
	}
}

func TestASearchFindsOneOfManyMessages(t *testing.T) {
	const n, page = 3000, 100
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	tasks := make([]*Task, n)
	for i := range tasks {
		req := &Enqueue{Queue: "q", Key: fmt.Sprintf("k%d", i%7), Payload: fmt.Appendf(nil, `{"order":%d}`, i), Headers: headers("user", fmt.Sprintf("u-%d", i))}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}
	}
	w.Do(tasks...)
	w.Advance(time.Second)
	second := w.now.UnixMilli()
	late := w.add(Enqueue{Queue: "q", Key: "k3", Payload: []byte(`{"order":"wanted one"}`), Headers: headers("user", "anna", "user", "berta")})
	failing := "connect to 10.0.0.7 timed out"
	w.Advance(time.Second)
	for name, f := range map[string]Filter{
		"header":            {Header: "user", Value: "b?rta"},
		"payload":           {Payload: []byte(`"wanted`)},
		"since":             {Since: second},
		"since and until":   {Since: second, Until: second},
		"header and times":  {Header: "user", Value: "an*", Since: second, Until: second + 1},
		"error":             {Error: &failing},
		"error of a group":  {Error: new("connect to # timed out")},
		"error by its part": {Error: new("*10.0.0.7*")},
	} {
		t.Run(name, func(t *testing.T) {
			if f.Error != nil && w.core.leases.byID[late] == nil {
				w.fail("q", late, failing)
			}
			got := w.search(Browse{Queue: "q", Count: page, Filter: &f})
			if !slices.Equal(got.ids, []ID{late}) {
				t.Errorf("found %v, want %v", got.ids, late)
			}
			if want := (n + page) / page; got.pages != want || got.empty != want-1 {
				t.Errorf("%d pages of which %d were empty, want %d", got.pages, got.empty, want)
			}
		})
	}
	for name, f := range map[string]Filter{
		"another header": {Header: "tenant", Value: "*"}, "another value": {Header: "user", Value: "u-3000"}, "another payload": {Payload: []byte("wanted two")},
		"another error": {Error: new("timed out")}, "later": {Since: second + 1}, "earlier": {Until: 1}, "a queue": {Origin: "q"},
	} {
		if got := w.search(Browse{Queue: "q", Count: 1000, Filter: &f}); len(got.ids) > 0 {
			t.Errorf("%s: found %v", name, got.ids)
		}
	}
	if got := w.search(Browse{Queue: "q", Key: "k1", Count: page, Filter: &Filter{Header: "user", Value: "u-1?"}}); len(got.ids) != 1 || got.pages > n/7/page+1 {
		t.Errorf("within a key: %d found in %d pages", len(got.ids), got.pages)
	}
	// A search that is not asked to go on leaves nothing.
	w.must(func(tx *Tx) error { return nil })
	if c := w.core; len(w.reads) != 0 || len(c.out.jobs) != 0 || c.queues.byName["q"].changes.Readers() != 0 {
		t.Error("a search goes on by itself")
	}
}

// fail leases messages of a queue until it has the one, and fails it without a delay.
func (w *world) fail(queue string, id ID, text string) {
	w.t.Helper()
	var others []Receipt
	for {
		ds := w.lease(queue, 1000)
		if len(ds) == 0 {
			w.t.Fatal("the message cannot be leased")
		}
		for _, d := range ds {
			if d.Receipt.ID != id {
				others = append(others, d.Receipt)
				continue
			}
			w.must(func(tx *Tx) error {
				_, err := tx.Nack(&Nack{Queue: queue, Receipt: d.Receipt, Error: text})
				return err
			})
			w.must(func(tx *Tx) error { _, err := tx.Release(queue, others); return err })
			return
		}
	}
}

// A search finds messages in every state, in memory and on disk, and says in which they are
// now.
func TestASearchFindsMessagesInEveryState(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Window = 2 })
	w.queue("q", QueueOptions{})
	for i := range 10 {
		req := Enqueue{Queue: "q", Key: "k", Headers: headers("find", "me")}
		if i == 8 {
			req.Delay = time.Hour
		}
		w.add(req)
		w.enqueue("q", "k", "other")
	}
	leasedID := w.lease("q", 1)[0].Receipt.ID
	w.die("q", "x")
	got := map[string]int{}
	for _, queue := range []string{"q", "q.dlq"} {
		for _, status := range Statuses() {
			got[queue+" "+status] = len(w.search(Browse{Queue: queue, Status: status, Count: 3, Filter: &Filter{Header: "find", Value: "m*"}}).ids)
		}
	}
	want := map[string]int{"q ready": 8, "q delayed": 1, "q leased": 1, "q dead": 0, "q.dlq ready": 0, "q.dlq delayed": 0, "q.dlq leased": 0, "q.dlq dead": 0}
	if w.lease("q.dlq", 1)[0].Receipt.ID == leasedID {
		t.Fatal("the scene is not set")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if n := len(w.search(Browse{Queue: "q.dlq", Status: StatusLeased, Count: 3, Filter: &Filter{Error: new("x"), Origin: "q"}}).ids); n != 1 {
		t.Errorf("%d dead and leased messages are found by their error", n)
	}
	w.sound()
}

// A long error is kept up to its last whole character.
func TestALongErrorIsNotCutWithinACharacter(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.die("q", strings.Repeat("€", ErrorBytes/3+10)) // of three bytes, and 8192 is no multiple of three
	kept := strings.Repeat("€", ErrorBytes/3)
	if got := w.search(Browse{Queue: "q.dlq", Count: 1, Filter: &Filter{Error: &kept}}); len(got.ids) != 1 {
		t.Error("the message is not found by the whole characters of its error")
	}
}

// What a page does off the loop is bounded, whatever the messages and the patterns are.
func TestAPageOfASearchEndsWhenItHasDoneMuch(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.die("q", slices.Repeat([]string{strings.Repeat("a", ErrorBytes)}, 5)...)
	costly := strings.Repeat("a*", filterBytesMax/2-1) + "b"
	if got := w.search(Browse{Queue: "q.dlq", Count: 5, Filter: &Filter{Error: &costly}}); got.pages != 5 || len(got.ids) != 0 {
		t.Errorf("%d pages for five messages that take long to compare", got.pages)
	}
	plain := strings.Repeat("a", ErrorBytes)
	if got := w.search(Browse{Queue: "q.dlq", Count: 5, Filter: &Filter{Error: &plain}}); got.pages != 1 || len(got.ids) != 5 {
		t.Errorf("%d pages for five messages that take a moment to compare, %d found", got.pages, len(got.ids))
	}
	w.queue("big", QueueOptions{})
	payload := strings.Repeat("x", w.core.cfg.Limits.Payload)
	n := 2*search.WorkMax/len(payload) + 1
	for range n {
		w.enqueue("big", "k", payload)
	}
	got := w.search(Browse{Queue: "big", Count: n, Filter: &Filter{Payload: []byte("xy")}})
	if got.pages != 3 || got.empty != 3 {
		t.Errorf("%d messages of %d bytes are looked at in %d pages", n, len(payload), got.pages)
	}
}

func TestASearchWithAMistakeIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	long := strings.Repeat("x", filterBytesMax+1)
	for want, f := range map[string]Filter{
		`the pattern of HEADER, "[a", has a [ without its ], write \[ for the character itself`: {Header: "h", Value: "[a"},
		`the pattern of ERROR, "a\\", ends with a single \, write \\ for the character itself`:  {Error: new(`a\`)},
		"SINCE 2 is after UNTIL 1":                              {Since: 2, Until: 1},
		"the pattern of ERROR has 16385 bytes, the limit is":    {Error: &long},
		"the pattern of HEADER has 16385 bytes, the limit is":   {Header: "h", Value: long},
		"the name of CAUSE has 16385 bytes, the limit is 163":   {Causes: []string{"a", long}},
		"101 times CAUSE, at most 100 in a command":             {Causes: make([]string, 101)},
		"the text of PAYLOAD has 16385 bytes, the limit is 163": {Payload: []byte(long)},
	} {
		err := w.do(func(tx *Tx) error { _, _, err := tx.Browse(&Browse{Queue: "q", Count: 1, Filter: &f}); return err })
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooBig) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	fits := strings.Repeat("x", filterBytesMax)
	w.search(Browse{Queue: "q", Count: 1, Filter: &Filter{Header: "h", Value: fits, Error: &fits, Payload: []byte(fits)}})
}

// groupsOf walks through a queue and adds up the groups of its pages.
func (w *world) groupsOf(req Browse) (groups map[string]*ErrorGroup, pages int) {
	w.t.Helper()
	groups = map[string]*ErrorGroup{}
	for {
		var list []ErrorGroup
		one := req
		w.must(func(tx *Tx) (err error) { req.Cursor, list, err = tx.BrowseErrors(&one); return err })
		if len(list) > causes.GroupsMax {
			w.t.Errorf("a page has %d groups", len(list))
		}
		pairs := 0
		for _, g := range list {
			pairs += len(g.Queues)
			sum := groups[g.Error]
			if sum == nil {
				sum = &ErrorGroup{First: g.First, Queues: map[string]int64{}}
				groups[g.Error] = sum
			}
			sum.Count += g.Count
			if g.First.Before(sum.First) {
				sum.First = g.First
			}
			if g.Last.After(sum.Last) {
				sum.Last, sum.Example = g.Last, g.Example
			}
			for q, n := range g.Queues {
				sum.Queues[q] += n
			}
		}
		if pairs > causes.PairsMax {
			w.t.Errorf("a page has %d queues in its groups", pairs)
		}
		if pages++; req.Cursor == "" {
			return groups, pages
		}
	}
}

func TestErrorsAreGroupedWithWhatTheyHaveInCommon(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("a", QueueOptions{})
	w.queue("b", QueueOptions{DLQ: new("a.dlq")})
	began := w.now
	w.die("a", "order 17 is unknown", "disk [full]", "order 4 is unknown")
	w.die("b", "order 1234567 is unknown", "")
	w.enqueue("a", "k", "has not failed")
	groups, pages := w.groupsOf(Browse{Queue: "a.dlq", Count: 2})
	if pages != 3 || len(groups) != 3 {
		t.Fatalf("%d pages, %v", pages, groups)
	}
	for text, want := range map[string]string{
		"order # is unknown": "3 0s 3ms map[a:2 b:1]", `disk \[full]`: "1 1ms 1ms map[a:1]", "": "1 4ms 4ms map[b:1]",
	} {
		g := groups[text]
		if g == nil {
			t.Fatalf("no group %q in %v", text, groups)
		}
		if got := fmt.Sprint(g.Count, g.First.Sub(began), g.Last.Sub(began), g.Queues); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		found := w.search(Browse{Queue: "a.dlq", Count: 10, Filter: &Filter{Error: &text}})
		if len(found.ids) != int(g.Count) || !slices.Contains(found.ids, g.Example) {
			t.Errorf("%q: its pattern finds %v, of which %s is an example", text, found.ids, g.Example)
		}
	}
	if groups, _ := w.groupsOf(Browse{Queue: "a", Count: 10}); len(groups) != 0 {
		t.Errorf("messages that have not failed have the errors %v", groups)
	}
	if groups, _ := w.groupsOf(Browse{Queue: "a.dlq", Count: 10, Filter: &Filter{Payload: []byte("disk")}}); len(groups) != 1 {
		t.Errorf("the errors of some messages are %v", groups)
	}
}

func TestAPageHasABoundedNumberOfGroups(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	letters := func(i int) string { return string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}) }
	var texts []string
	for i := range causes.GroupsMax + 1 {
		texts = append(texts, letters(i))
	}
	texts = append(texts, letters(0))
	w.die("q", texts[:causes.GroupsMax]...)
	if groups, pages := w.groupsOf(Browse{Queue: "q.dlq", Count: 1000}); pages != 1 || len(groups) != causes.GroupsMax {
		t.Errorf("%d groups are in %d pages", len(groups), pages)
	}
	w.die("q", texts[causes.GroupsMax:]...)
	groups, pages := w.groupsOf(Browse{Queue: "q.dlq", Count: 1000})
	if pages != 2 || len(groups) != causes.GroupsMax+1 || groups[letters(0)].Count != 2 || groups[letters(1)].Count != 1 {
		t.Errorf("%d groups are in %d pages, that of two pages has %d messages", len(groups), pages, groups[letters(0)].Count)
	}
}

// The examples of docs/explanation/messages.md are what the code does.
func TestTheDocumentShowsGroupsAsTheyAre(t *testing.T) {
	text, err := os.ReadFile("../docs/explanation/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| an error | its group |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	for _, row := range rows {
		cells := strings.Split(row, "`")
		if len(cells) != 5 {
			t.Fatalf("not two examples: %s", row)
		}
		if got := glob.Quote(errtext.Group(cells[1])); got != cells[3] {
			t.Errorf("%s is of the group %s, the document says %s", cells[1], got, cells[3])
		}
	}
	if len(rows) < 10 {
		t.Errorf("%d examples were found", len(rows))
	}
}
