package top

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/faisca/fila/internal/client"
)

var rewrite = flag.Bool("rewrite", false, "regenerate golden files")

func fieldsOf(pairs ...any) client.Map {
	var m client.Map
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		if n, ok := v.(int); ok {
			v = int64(n)
		}
		m = append(m, client.Field{Name: pairs[i].(string), Value: v})
	}
	return m
}

func queues() *Figures {
	f := &Figures{
		At: time.UnixMilli(1_767_225_600_000), Broker: "127.0.0.1:5555",
		Totals: fieldsOf("queues", 3, "ready", 1234567, "delayed", 17, "leased", 8, "dead", 3, "keys", 12, "writable", 1),
	}
	add := func(name, state string, ready, oldest, leased, dead, waiters int, in, out, fail float64) {
		f.Items = append(f.Items, Item{
			Map:   fieldsOf("name", name, "ready", ready, "oldest_ready_ms", oldest, "delayed", 5, "leased", leased, "dead", dead, "keys", 4, "waiters", waiters, "state", state, "reason", "it is "+state+", and this is why, in as many words as it takes to say which part of the messages is stopped"),
			Rates: map[string]float64{"enqueued": in, "delivered": out, "nacked": fail},
		})
	}
	add("orders", "throttled", 1200, 90_000, 8, 3, 4, 120, 118.4, 0)
	add("mails", "empty", 0, 0, 0, 0, 12, 0, 0.5, 0.1)
	add("a name that is much too long for the column \x1b[2J", "no_consumer", 1_234_567, 4_000_000, 0, 0, 0, 12_345_678, 0, 0)
	f.Items = append(f.Items, Item{Map: fieldsOf("name", "new", "ready", 1)})
	return f
}

// broke are figures of a broker with keys that wait for budgets.
func broke() *Figures {
	f := queues()
	f.Totals = append(f.Totals, client.Field{Name: "keys_without_credit", Value: int64(1200)})
	return f
}

func keys() *Figures {
	f := &Figures{At: time.UnixMilli(1_767_225_600_000), Broker: "127.0.0.1:5555", Queue: "orders", Totals: fieldsOf("ready", 1200, "delayed", 0, "leased", 8, "dead", 0, "keys", 3)}
	add := func(name string, depth, oldest int, share, fair float64, state string) {
		f.Items = append(f.Items, Item{Map: fieldsOf("key", name, "depth", depth, "leased", 1, "oldest_ms", oldest, "share", share, "fair_share", fair, "state", state), Rates: map[string]float64{"delivered": 12}})
	}
	add("tenant-7", 1000, 3200, 0.125, 0.5, "throttled")
	add("tenant-8", 200, 450, 0.875, 0.5, "ready")
	add("idle", 0, 0, 0, 0, "empty")
	return f
}

func TestPicturesAreWhatTheirGoldenFilesShow(t *testing.T) {
	explaining := Model{View: View{Width: 80, Height: 12, Live: true}, Figures: keys(), Queue: "orders"}
	explaining.Explained("tenant-7", fieldsOf("state", "throttled", "reason", "the throttle provider:x has no token", "throttle", "provider:x", "ready_at", 1_767_225_601_000, "depth", 1000), nil)
	for name, m := range map[string]Model{
		"queues":      {View: View{Width: 80, Height: 24, Live: true, Sort: 1}, Figures: queues()},
		"queues-once": {View: View{Width: 80, Sort: 1}, Figures: queues()},
		"queues-40":   {View: View{Width: 40, Height: 8, Live: true, Sort: 1, Selected: 3}, Figures: queues()},
		"queues-in":   {View: View{Width: 120, Height: 10, Live: true, Sort: 7, Filter: "o", Typing: true}, Figures: queues()},
		"queues-none": {View: View{Width: 80, Height: 10, Live: true, Filter: "zzz", Paused: true}, Figures: queues()},
		"queues-gone": {View: View{Width: 80, Height: 10, Live: true, Trouble: "no broker; trying again"}, Figures: queues()},
		"keys":        {View: View{Width: 80, Height: 24, Live: true, Sort: 1, Selected: 1}, Figures: keys(), Queue: "orders"},
		"keys-behind": {View: View{Width: 80, Height: 9, Live: true, Sort: 7}, Figures: keys(), Queue: "orders"},
		"explain":     explaining,
		"no-credit":   {View: View{Width: 100, Height: 6, Live: true}, Figures: broke()},
		"begin":       {View: View{Width: 80, Height: 4, Live: true}},
	} {
		got := m.Render()
		if name == "queues-once" {
			got = strings.Join(Picture(m.Figures, &m.View), "\n")
		}
		lines := strings.Split(got, "\n")
		if m.Height > 0 && len(lines) != m.Height {
			t.Errorf("%s has %d lines, and the terminal %d", name, len(lines), m.Height)
		}
		for _, line := range lines {
			if lipgloss.Width(line) > m.Width {
				t.Errorf("%s: %q is wider than %d", name, line, m.Width)
			}
		}
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(got+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != got+"\n" {
			t.Errorf("%s is\n%s\nand not what %s says (%v); -args -rewrite writes it again", name, got, file, err)
		}
	}
}

func TestNoTerminalIsTooSmall(t *testing.T) {
	for _, f := range []*Figures{queues(), keys(), {}} {
		for width := range 30 {
			for height := range 12 {
				m := Model{View: View{Width: width, Height: height, Live: true, Color: true, Selected: 2}, Figures: f, Queue: f.Queue}
				for line := range strings.SplitSeq(m.Render(), "\n") {
					if width > 0 && height > 0 && lipgloss.Width(line) > width {
						t.Fatalf("%d×%d: %q", width, height, line)
					}
				}
			}
		}
	}
}

func TestRatesAreTheGrowthOfCounters(t *testing.T) {
	at := time.UnixMilli(0)
	sample := func(after time.Duration, n int) *Figures {
		return &Figures{At: at.Add(after), Items: []Item{{Map: fieldsOf("name", "q", "enqueued", n)}}}
	}
	before := sample(0, 100)
	for _, x := range []struct {
		now  *Figures
		want float64
	}{{sample(2*time.Second, 120), 10}, {sample(time.Second, 100), 0}, {sample(time.Second, 3), 0}} {
		x.now.rates(before)
		if got := x.now.Items[0].Rates["enqueued"]; got != x.want {
			t.Errorf("%v a second, want %v", got, x.want)
		}
	}
	other := sample(time.Second, 200)
	other.Queue = "q"
	if other.rates(before); other.Items[0].Rates != nil {
		t.Error("queues were compared with keys")
	}
}

func TestKeysSteerTheView(t *testing.T) {
	m := &Model{View: View{Width: 80, Height: 24, Live: true, Sort: 1}}
	m.Take(queues())
	press := func(keys ...string) (last Want) {
		for _, k := range keys {
			text := k
			if len(k) > 1 {
				text = ""
			}
			last = m.Press(k, text)
		}
		return last
	}
	chosen := func() string { name, _ := m.Chosen(); return name }
	if press("down", "down", "down", "down", "up"); chosen() != "new" {
		t.Errorf("%s is selected", chosen())
	}
	if press("end"); chosen() != "mails" {
		t.Errorf("%s is selected", chosen())
	}
	if press("/", "o", "r", "d", "enter"); chosen() != "orders" || m.Filter != "ord" || m.Typing {
		t.Errorf("%s is selected, the filter is %q", chosen(), m.Filter)
	}
	if press("/", "backspace", "enter"); m.Filter != "or" {
		t.Errorf("the filter is %q", m.Filter)
	}
	press("/", "d", "enter")
	if press("p"); !m.Paused {
		t.Error("it is not paused")
	}
	m.Take(&Figures{})
	if chosen() != "orders" {
		t.Error("figures change while it is paused")
	}
	if press("p") != Sample || press("enter") != Sample || m.Queue != "orders" || m.Filter != "" {
		t.Errorf("enter opens %q with the filter %q", m.Queue, m.Filter)
	}
	if m.Take(queues()); m.Figures != nil {
		t.Error("it shows queues where keys are wanted")
	}
	if m.Take(keys()); press("enter") != Explain || chosen() != "tenant-7" {
		t.Errorf("%s is selected", chosen())
	}
	m.Explained("tenant-7", fieldsOf("state", "ready", "reason", "why not"), nil)
	if !strings.Contains(m.Render(), "ready: why not") {
		t.Errorf("it shows\n%s", m.Render())
	}
	if press("esc"); m.Detail != nil || m.Queue != "orders" {
		t.Error("it does not go back to the keys")
	}
	if press("esc") != Sample || m.Queue != "" {
		t.Error("it does not go back to the queues")
	}
	m.Explained("tenant-7", nil, errors.New("no such queue"))
	m.Take(queues())
	for range Columns("") {
		press("s")
	}
	if m.Sort != 1 {
		t.Errorf("it is sorted by %d", m.Sort)
	}
	fixed := &Model{View: View{Width: 80, Height: 24}, Queue: "orders", Fixed: true}
	if fixed.Press("esc", ""); fixed.Queue != "orders" {
		t.Error("it leaves the queue that was asked for")
	}
	if press("q"); !m.Ended {
		t.Error("q does not end it")
	}
}

func TestTheSelectionStaysWithItsItem(t *testing.T) {
	m := &Model{View: View{Width: 80, Height: 24, Sort: 1}, Queue: "orders"}
	m.Take(keys())
	m.Press("down", "")
	f := keys()
	f.Items[1].Map[1].Value = int64(5000) // tenant-8 comes first
	if m.Take(f); m.Selected != 0 {
		t.Errorf("%d is selected", m.Selected)
	}
	f = keys()
	f.Items = f.Items[:1]
	if m.Take(f); m.Selected != 0 {
		t.Errorf("%d is selected of one", m.Selected)
	}
}

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 99_999: "99999", 100_000: "100k", 9_999_999: "10000k", 10_000_000: "10M", 12e9: "12G"} {
		if got := Short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := perSecond(0) + " " + perSecond(0.26) + " " + perSecond(12.3); got != "0 0.3 12" {
		t.Error(got)
	}
}

// However long the error is, the screen says that the view goes on.
func TestAViewThatTriesAgainSaysSoInANarrowTerminal(t *testing.T) {
	m := &Model{View: View{Width: 80, Height: 10, Live: true}}
	m.Failed(errors.New("no broker at 127.0.0.1:44789: dial tcp 127.0.0.1:44789: connect: connection refused"))
	if screen := m.Render(); !strings.Contains(screen, "trying again") || !strings.Contains(screen, "no broker at 127.0.0.1:44789") {
		t.Errorf("the screen is\n%s", screen)
	}
}
