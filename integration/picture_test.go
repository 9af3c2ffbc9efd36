package integration_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
)

var drawPicture = flag.Bool("draw", false, "write docs/pictures/fairness.svg")

// The picture of README.md shows a run: three tenants enqueue, one of them thirty times as much and
// first, and one worker takes everything. On the left all messages have one fairness key, on the
// right each tenant has its own. The order of deliveries is the same in every run, so is the picture.
func TestTheFairnessPictureIsOfARun(t *testing.T) {
	t.Parallel()
	c := kit.Connect(t, kit.Serve(t, "--storage.engine", "memory").Addr(), 3)
	without, with := deliveries(t, c, "without", false), deliveries(t, c, "with", true)
	for _, quiet := range []string{"globex", "initech"} {
		if after := lastOf(without, quiet); after < 310 {
			t.Errorf("with one key %s is done after %d deliveries", quiet, after)
		}
		if after := lastOf(with, quiet); after > 30 {
			t.Errorf("with a key of its own %s is done after %d deliveries", quiet, after)
		}
	}
	drawing := drawn(without, with)
	file := filepath.Join("..", "docs", "pictures", "fairness.svg")
	if *drawPicture {
		if err := os.WriteFile(file, []byte(drawing), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != drawing {
		t.Errorf("%s does not show this run (%v): make docs-pictures", file, err)
	}
}

// tenants are those of the picture, with the number of their messages and their colour.
func tenants() []tenant {
	return []tenant{{"acme", 300, "#4a6fa5"}, {"globex", 10, "#c8713a"}, {"initech", 10, "#4d8f5b"}}
}

type tenant struct {
	name     string
	messages int
	color    string
}

// deliveries returns whose messages a worker gets, in order.
func deliveries(t *testing.T, c *redis.Client, queue string, keys bool) []string {
	t.Helper()
	do := func(words ...any) *redis.Cmd {
		t.Helper()
		reply := c.Do(t.Context(), words...)
		if reply.Err() != nil {
			t.Fatal(reply.Err())
		}
		return reply
	}
	do("FILA.QUEUE", "CREATE", queue)
	total := 0
	for _, tenant := range tenants() {
		for range tenant.messages {
			key := "default"
			if keys {
				key = tenant.name
			}
			do("FILA.ENQUEUE", queue, tenant.name, "KEY", key)
			total++
		}
	}
	var order []string
	for range total {
		messages, err := do("FILA.LEASE", queue).Slice()
		if err != nil || len(messages) != 1 {
			t.Fatalf("leased %v, %v", messages, err)
		}
		message, _ := messages[0].([]any)
		do("FILA.ACK", queue, message[0])
		order = append(order, fmt.Sprint(message[1]))
	}
	return order
}

// lastOf returns after how many deliveries a tenant is done.
func lastOf(order []string, name string) int {
	last := 0
	for i, n := range order {
		if n == name {
			last = i + 1
		}
	}
	return last
}

// drawn returns the picture: the share of each tenant's messages that is done after so many deliveries.
func drawn(without, with []string) string {
	const width, height, top = 340.0, 180.0, 70.0
	b := &strings.Builder{}
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 350" font-family="sans-serif" font-size="13" role="img"` +
		` aria-label="Share of each tenant's messages done, by number of deliveries, without and with fairness keys">` + "\n" +
		`<rect width="820" height="350" fill="#fff"/>` + "\n" +
		`<text x="40" y="24" font-size="15">acme enqueues 300 messages, then globex and initech 10 each. One worker takes them all.</text>` + "\n")
	for panel, p := range []struct {
		title string
		order []string
	}{{"one key for all: first in, first out", without}, {"a fairness key for each tenant", with}} {
		left := 50 + float64(panel)*400
		at := func(deliveries int, share float64) string {
			return fmt.Sprintf("%.1f,%.1f", left+width*float64(deliveries)/float64(len(p.order)), top+height*(1-share))
		}
		fmt.Fprintf(b, "<text x=\"%.0f\" y=\"56\" font-weight=\"bold\">%s</text>\n", left, p.title)
		fmt.Fprintf(b, "<path d=\"M%.0f %.0fV%.0fH%.0f\" fill=\"none\" stroke=\"#555\"/>\n", left, top, top+height, left+width)
		fmt.Fprintf(b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\" fill=\"#555\">100 %%</text><text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\" fill=\"#555\">0</text>\n",
			left-6, top+5, left-6, top+height+4)
		fmt.Fprintf(b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\" fill=\"#555\">%d deliveries</text>\n", left+width, top+height+18, len(p.order))
		for i, tenant := range tenants() {
			points, done := []string{at(0, 0)}, 0
			for n, name := range p.order {
				if name == tenant.name {
					points = append(points, at(n, float64(done)/float64(tenant.messages)))
					done++
					points = append(points, at(n+1, float64(done)/float64(tenant.messages)))
				}
			}
			points = append(points, at(len(p.order), 1))
			fmt.Fprintf(b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n", tenant.color, strings.Join(points, " "))
			fmt.Fprintf(b, "<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s: done after %d</text>\n", left+float64(i%2)*170, top+height+40+20*float64(i/2), tenant.color, tenant.name, lastOf(p.order, tenant.name))
		}
	}
	b.WriteString("<text x=\"50\" y=\"338\" fill=\"#555\">Share of each tenant's messages that is done. Measured: make docs-pictures</text>\n</svg>\n")
	return b.String()
}
