package remote

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

func historyRow() row {
	return row{
		name: "history", args: "[QUEUE]", short: "Show what a queue, one of its fairness keys, or all queues did lately",
		long: `Each line is drawn by its own scale: a full block is the most, a blank nothing. NOW is the
latest, MOST the greatest of what the broker has kept: every ten seconds, every minute of
more than 15 minutes, every ten minutes of more than an hour. -o json, jsonl and plain have the
moments as FILA.HISTORY returns them.`,
		wire: "FILA.HISTORY", run: (*call).history,
		columns: "at enqueued delivered acked nacked expired ready delayed leased dead",
		none:    "there is no history yet: a moment is kept every ten seconds",
		options: []option{
			{"key", "KEY", text, "of a fairness `key` of the queue, which goes back an hour"},
			{"range", "", millis, "how far it goes back: a `duration` of up to 24h; 1h unless it is given"},
		},
		examples: []string{"fila history", "fila history orders --range 24h", "fila history orders --key tenant-1 -o json"},
	}
}

// history draws a history, or in the other forms lists its moments.
func (c *call) history() error {
	lines := queueLines()
	if c.given("key") {
		if c.arg("QUEUE") == "" {
			return usagef("--key is a fairness key of a queue, which is missing")
		}
		c.columns, lines = "at enqueued delivered acked ready delayed leased oldest_ms queue_delivered", keyLines()
	}
	return c.drawn(lines, 24*time.Hour)
}

// throttleHistory is history of a throttle.
func (c *call) throttleHistory() error {
	return c.drawn([]plotted{
		{name: "passed", counters: []string{"passed"}, show: perSecond}, {name: "refused", counters: []string{"refused"}, show: perSecond},
		{name: "leases", level: "held", show: whole}, {name: "keys waiting", level: "waiting", show: whole},
	}, time.Hour)
}

// drawn asks for moments, and draws or lists them.
func (c *call) drawn(lines []plotted, most time.Duration) error {
	words, err := c.command()
	if err != nil {
		return err
	}
	last := time.Hour
	if c.given("range") {
		if last = c.duration("range"); last < time.Second || last > most {
			return usagef("--range must be from 1s to %s, not %s", output.Duration(most), output.Duration(last))
		}
	}
	reply, err := c.do(append(words, "RANGE", strconv.FormatInt(int64(last/time.Second), 10))...)
	if err != nil {
		return err
	}
	moments := client.Maps(reply)
	switch {
	case !c.out.People():
		rows := c.rows()
		for _, m := range moments {
			rows.Add(m)
		}
		rows.Close("")
	case len(moments) < 2:
		c.out.Say("%s", c.filled(c.none))
	default:
		for _, line := range drawHistory(moments, lines, c.width(), c.out.Zone) {
			c.out.Raw(line)
		}
	}
	return nil
}

// plotted is a line of a history.
type plotted struct {
	name     string
	counters []string // it is a rate: what the sum of them grows by in a second, or in what of grows; else
	of       string
	level    string // it is a number of each moment
	show     func(float64) string
}

func queueLines() []plotted {
	return []plotted{
		{name: "enqueued", counters: []string{"enqueued"}, show: perSecond}, {name: "delivered", counters: []string{"delivered"}, show: perSecond},
		{name: "acked", counters: []string{"acked"}, show: perSecond}, {name: "failed", counters: []string{"nacked", "expired"}, show: perSecond},
		{name: "ready", level: "ready", show: whole}, {name: "delayed", level: "delayed", show: whole},
		{name: "leased", level: "leased", show: whole}, {name: "dead", level: "dead", show: whole},
	}
}

func keyLines() []plotted {
	return []plotted{
		{name: "enqueued", counters: []string{"enqueued"}, show: perSecond}, {name: "delivered", counters: []string{"delivered"}, show: perSecond},
		{name: "acked", counters: []string{"acked"}, show: perSecond}, {name: "share", counters: []string{"delivered"}, of: "queue_delivered", show: percentage},
		{name: "ready", level: "ready", show: whole}, {name: "delayed", level: "delayed", show: whole}, {name: "leased", level: "leased", show: whole},
		{name: "oldest", level: "oldest_ms", show: func(ms float64) string { return output.Duration(time.Duration(ms) * time.Millisecond) }},
	}
}

func whole(v float64) string { return strconv.FormatInt(int64(v), 10) }

func percentage(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) }

func perSecond(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f/s", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + "/s"
}

// between returns what a line says of the time from one moment to the next.
func (l *plotted) between(a, b client.Map) float64 {
	if l.level != "" {
		return float64(b.Int(l.level))
	}
	grown, in := int64(0), float64(b.Int("at")-a.Int("at"))/1000
	for _, name := range l.counters {
		grown += b.Int(name) - a.Int(name)
	}
	if l.of != "" {
		in = float64(b.Int(l.of) - a.Int(l.of))
	}
	if in <= 0 {
		return 0
	}
	return max(float64(grown)/in, 0)
}

// drawHistory draws moments, of which there are two at least, in the width of a terminal.
func drawHistory(moments []client.Map, lines []plotted, width int, zone *time.Location) []string {
	begin, end := moments[0].Int("at"), moments[len(moments)-1].Int("at")
	type row struct{ name, now, most string }
	rows, values := []row{{"", "NOW", "MOST"}}, make([][]float64, len(lines))
	for i := range lines {
		l := &lines[i]
		for j := range moments[1:] {
			values[i] = append(values[i], l.between(moments[j], moments[j+1]))
		}
		rows = append(rows, row{l.name, l.show(values[i][len(values[i])-1]), l.show(slices.Max(values[i]))})
	}
	var wide [3]int
	for _, r := range rows {
		for i, cell := range []string{r.name, r.now, r.most} {
			wide[i] = max(wide[i], uniseg.StringWidth(cell))
		}
	}
	const least, gap, stampWidth = 20, 2, len("2006-01-02 15:04")
	room := min(max(width-wide[0]-wide[1]-wide[2]-3*gap, least, stampWidth+6), 2*(len(moments)-1)+least)
	drawn := []string{fmt.Sprintf("%-*s  %*s  %*s", wide[0]+gap+room, "", wide[1], rows[0].now, wide[2], rows[0].most)}
	for i, r := range rows[1:] {
		drawn = append(drawn, fmt.Sprintf("%-*s  %s  %*s  %*s", wide[0], r.name, blocks(moments, values[i], room), wide[1], r.now, wide[2], r.most))
	}
	from, until := time.UnixMilli(begin).In(zone).Format("2006-01-02 15:04"), time.UnixMilli(end).In(zone).Format("15:04")
	return append(drawn, fmt.Sprintf("%-*s  %s%*s", wide[0], "", from, room-len(from), until))
}

// blocks draws values, each of the time between two moments, in so many cells: of a cell the greatest.
func blocks(moments []client.Map, values []float64, cells int) string {
	most := slices.Max(values)
	begin := moments[0].Int("at")
	length := max(moments[len(moments)-1].Int("at")-begin, 1)
	heights := make([]float64, cells)
	for i, v := range values {
		from := int((moments[i].Int("at") - begin) * int64(cells) / length)
		to := int((moments[i+1].Int("at") - begin) * int64(cells) / length)
		for cell := from; cell < max(to, from+1) && cell < cells; cell++ {
			heights[cell] = max(heights[cell], v)
		}
	}
	marks := []rune(" ▁▂▃▄▅▆▇█")
	drawn := make([]rune, cells)
	for i, h := range heights {
		drawn[i] = marks[0]
		if h > 0 {
			drawn[i] = marks[1+int(h/most*float64(len(marks)-2))]
		}
	}
	return string(drawn)
}
