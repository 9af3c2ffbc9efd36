package remote

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/cli/top"
	"github.com/faisca/fila/internal/client"
)

// watchRows are the commands that show what happens while it happens.
func watchRows() []row {
	return []row{tailRow(), historyRow(), {
		name: "top", args: "[QUEUE]", short: "Watch queues, or the fairness keys of a queue, as they change",
		long: `On a terminal it is a live view: the arrow keys select, Enter opens a queue and explains
a key, s sorts by the next column, / filters, p pauses, Esc goes back, q quits.
--once prints one picture and ends, --batch one each time. A bar shows the share of a
key in deliveries of the last minute; the mark in it is its fair share.`,
		run: (*call).top,
		options: []option{
			{"once", "", yes, "print one picture"},
			{"batch", "", yes, "print one picture after the other"},
			{"count", "", number, "with --batch: end after `n` pictures"},
			{"every", "", millis, "the `duration` between pictures; 1s unless it is given"},
			{"sort", "", text, "sort by a `column`, such as leased"},
			{"filter", "", text, "only names that contain a `text`"},
			limit(),
		},
		examples: []string{"fila top --once", "fila top orders --batch --count 2 --sort leased"},
	}}
}

// betweenSamples is the time over which --once counts rates.
const betweenSamples = 300 * time.Millisecond

// top shows the live view, or pictures.
func (c *call) top() error {
	queue := c.arg("QUEUE")
	every := c.duration("every")
	switch {
	case c.is("once") && c.is("batch"):
		return usagef("--once prints one picture and --batch several: give one of them")
	case c.given("every") && every < 100*time.Millisecond:
		return usagef("--every must be at least 100ms, not %s", every)
	case !c.given("every"):
		every = time.Second
	}
	v := top.View{Filter: c.text("filter"), Sort: top.DefaultSort(queue), Color: c.out.Color, Zone: c.out.Zone, Width: c.width()}
	if c.given("sort") {
		columns := top.Columns(queue)
		v.Sort = slices.IndexFunc(columns, func(name string) bool { return strings.EqualFold(name, c.text("sort")) })
		if v.Sort < 0 {
			return usagef("--sort must be one of %s, not %q", strings.ToLower(strings.Join(columns, ", ")), c.text("sort"))
		}
	}
	addr, err := c.broker.Addr()
	if err != nil {
		return err
	}
	s := &top.Sampler{Dial: c.broker.Dial, Addr: addr}
	defer s.Close()
	f, err := s.Sample(c.ctx, queue)
	if err != nil {
		return err
	}
	switch {
	case c.is("batch"):
		return c.pictures(s, f, &v, every, c.number("count"))
	case c.is("once") || c.out.Form != output.Table || !c.env.Terminal:
		return c.pictures(s, f, &v, betweenSamples, 1)
	}
	m := &top.Model{View: v, Queue: queue, Fixed: queue != ""}
	return top.Live(c.ctx, m, s, every, c.env.Stdin, c.env.Stdout)
}

// pictures prints pictures until there were enough, or it is interrupted.
func (c *call) pictures(s *top.Sampler, f *top.Figures, v *top.View, every time.Duration, most int64) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for shown := int64(1); ; shown++ {
		select {
		case <-c.ctx.Done():
			return nil
		case <-tick.C:
		}
		f, err := s.Sample(c.ctx, f.Queue)
		if err != nil {
			return ended(err)
		}
		c.picture(f, v)
		if err := c.out.Flush(); err != nil || shown == most {
			return err
		}
	}
}

// picture prints one, or in JSON what it shows.
func (c *call) picture(f *top.Figures, v *top.View) {
	items := top.Shown(f, v)
	if n := c.number("limit"); n > 0 {
		items = items[:min(int64(len(items)), n)]
	}
	if c.out.Form == output.JSON || c.out.Form == output.JSONL {
		rows := c.rows()
		for _, i := range items {
			m := slices.Clone(i.Map)
			for _, name := range top.Counters() {
				m = append(m, client.Field{Name: name + "_per_second", Value: i.Rates[name]})
			}
			rows.Add(m)
		}
		rows.Close("")
		return
	}
	shown := *f
	shown.Items = items
	c.out.Raw(strings.Join(top.Picture(&shown, v), "\n") + "\n\n")
}

// width is that of the terminal, of COLUMNS, or 100.
func (c *call) width() int {
	if width, ok := c.terminalWidth(); ok {
		return width
	}
	const otherwise = 100
	if width, ok := columns(c.env.Environ); ok {
		return width
	}
	return otherwise
}

// terminalWidth is that of the terminal, or the COLUMNS that it is said to have.
func (c *call) terminalWidth() (width int, known bool) {
	if !c.env.Terminal {
		return 0, false
	}
	if f, ok := c.env.Stdout.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width, true
		}
	}
	return columns(c.env.Environ)
}

// columns is the width that the environment names.
func columns(environ []string) (width int, known bool) {
	const least = 20
	n, err := strconv.Atoi(variable(environ, "COLUMNS"))
	if err != nil || n < least {
		return 0, false
	}
	return n, true
}
