package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/faisca/fila/cli/output"
)

// View is how the figures are looked at.
type View struct {
	Width, Height int // of the terminal, in cells
	Sort          int // a column
	Filter        string
	Typing        bool // the filter is being typed
	Paused        bool
	Selected      int // of the items that are shown
	Detail        []string
	Trouble       string // why the figures are old
	Color         bool
	Zone          *time.Location
	Live          bool // there are keys to press
}

// column is one of the table.
type column struct {
	title string
	width int // 0: what is left
	text  func(i *Item) string
	order func(a, b *Item) int
}

// numbered is a column of numbers, the largest first.
func numbered(title string, width int, value func(i *Item) float64, text func(v float64) string) column {
	return column{title, width, func(i *Item) string { return text(value(i)) }, func(a, b *Item) int { return cmp.Compare(value(b), value(a)) }}
}

func field(title string, width int, name string) column {
	return numbered(title, width, func(i *Item) float64 { return float64(i.Int(name)) }, Short)
}

// rate is a column of the growth of counters.
func rate(title string, names ...string) column {
	sum := func(i *Item) float64 {
		if i.Rates == nil {
			return math.NaN()
		}
		total := 0.0
		for _, name := range names {
			total += i.Rates[name]
		}
		return total
	}
	return numbered(title, 6, sum, perSecond)
}

func named(title string) column {
	return column{title, 0, func(i *Item) string { return output.Escape(i.Name()) }, func(a, b *Item) int { return strings.Compare(a.Name(), b.Name()) }}
}

func age(title, name string) column {
	return numbered(title, 7, func(i *Item) float64 { return i.Float(name) }, func(v float64) string {
		if v == 0 {
			return "-"
		}
		return output.Duration(time.Duration(v) * time.Millisecond)
	})
}

// states is the column of the states.
func states() column {
	state := func(i *Item) string { return i.Text("state") }
	return column{"STATE", 11, state, func(a, b *Item) int { return strings.Compare(state(a), state(b)) }}
}

// queueColumns end with those that a terminal of 80 columns has no room for in the live view.
func queueColumns() []column {
	return []column{
		named("QUEUE"), field("READY", 6, "ready"), age("OLDEST", "oldest_ready_ms"), states(), field("LEASED", 6, "leased"), rate("IN/S", "enqueued"), rate("OUT/S", "delivered"),
		rate("FAIL/S", "nacked", "expired"), field("DEAD", 5, "dead"), field("WAIT", 4, "waiters"), field("DELAYED", 7, "delayed"), field("KEYS", 5, "keys"),
	}
}

// barWidth is that of the picture of a share.
const barWidth = 14

func keyColumns() []column {
	return []column{
		named("KEY"), field("DEPTH", 6, "depth"), field("LEASED", 6, "leased"), rate("OUT/S", "delivered"), age("OLDEST", "oldest_ms"),
		states(),
		numbered("SHARE", 6, func(i *Item) float64 { return i.Float("share") }, percent),
		{"SHARE, FAIR │", barWidth, func(i *Item) string { return bar(i.Float("share"), i.Float("fair_share")) }, behind},
	}
}

// behind puts the keys first that get the smallest part of their fair share.
func behind(a, b *Item) int {
	return cmp.Compare(b.Float("fair_share")-b.Float("share"), a.Float("fair_share")-a.Float("share"))
}

// Columns are those of a view of all queues, or of the keys of one.
func Columns(queue string) []string {
	var titles []string
	for _, c := range columnsOf(queue) {
		titles = append(titles, c.title)
	}
	return titles
}

func columnsOf(queue string) []column {
	if queue != "" {
		return keyColumns()
	}
	return queueColumns()
}

// Shown are the items that a view shows, in its order.
func Shown(f *Figures, v *View) []Item {
	var items []Item
	for _, i := range f.Items {
		if strings.Contains(strings.ToLower(i.Name()), strings.ToLower(v.Filter)) {
			items = append(items, i)
		}
	}
	all := columnsOf(f.Queue)
	order := all[v.Sort%len(all)].order
	slices.SortStableFunc(items, func(a, b Item) int {
		return cmp.Or(order(&a, &b), strings.Compare(a.Name(), b.Name()))
	})
	return items
}

// Picture makes the lines: at most Height, unless that is 0, none wider than Width.
func Picture(f *Figures, v *View) []string {
	columns := columnsOf(f.Queue)
	items := Shown(f, v)
	lines := []string{v.spread(v.strong("fila top")+"  "+f.Broker, f.At.In(v.zone()).Format("15:04:05")), totals(f), ""}
	var foot []string
	if v.Live {
		foot = append(foot, v.reason(items)...)
		foot = append(foot, v.foot(f, columns))
	}
	if len(v.Detail) > 0 {
		lines = append(lines, v.Detail...)
		return v.fit(lines, foot)
	}
	margin := ""
	if v.Live { // a sign marks the selected line as well as the colour
		margin = "  "
	}
	widths := widthsOf(columns, v.Width-len(margin))
	lines = append(lines, v.strong(margin+row(columns, widths, func(c column) string { return c.title })))
	room := len(items)
	if v.Height > 0 {
		room = max(0, v.Height-len(lines)-len(foot))
	}
	first := max(0, min(v.Selected-room+1, len(items)-room))
	for n := first; n < min(first+room, len(items)); n++ {
		line := margin + row(columns, widths, func(c column) string { return c.text(&items[n]) })
		if v.Live && n == v.Selected {
			line = v.chosen(pad("▸ "+line[len(margin):], v.Width))
		}
		lines = append(lines, line)
	}
	if len(items) == 0 {
		lines = append(lines, "nothing to show"+map[bool]string{true: " with this filter"}[v.Filter != ""])
	}
	return v.fit(lines, foot)
}

// fit cuts lines to the width, fills up to the height, and puts the foot below.
func (v *View) fit(lines, foot []string) []string {
	if v.Height > 0 {
		body := max(0, v.Height-len(foot))
		lines = lines[:min(len(lines), body)]
		for v.Live && len(lines) < body {
			lines = append(lines, "")
		}
	}
	lines = append(lines, foot...)
	for i, line := range lines {
		if lipgloss.Width(line) > v.Width {
			line = lipgloss.NewStyle().MaxWidth(v.Width).Render(line)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// totals is the line of sums. What must not be missed comes before the sums: a narrow terminal cuts the line.
func totals(f *Figures) string {
	t := f.Totals
	parts := []string{}
	if f.Queue == "" {
		parts = append(parts, fmt.Sprintf("queues %s", Short(t.Float("queues"))))
	} else {
		parts = append(parts, "queue "+output.Escape(f.Queue))
	}
	if f.More {
		parts = append(parts, fmt.Sprintf("the first %d", len(f.Items)))
	}
	if w := t.Get("writable"); w != nil && t.Int("writable") != 1 {
		parts = append(parts, "NOT WRITABLE")
	}
	for _, name := range []string{"ready", "delayed", "leased", "dead", "keys"} {
		parts = append(parts, name+" "+Short(t.Float(name)))
	}
	if n := t.Float("keys_without_credit"); n > 0 {
		parts = append(parts, "without credit "+Short(n))
	}
	return strings.Join(parts, "   ")
}

// reason says why the ready messages of the selected queue are where they are, in lines.
func (v *View) reason(items []Item) []string {
	if v.Selected >= len(items) || len(v.Detail) > 0 || v.Height > 0 && v.Height < heightOfReasons {
		return nil
	}
	i := &items[v.Selected]
	if i.Text("reason") == "" {
		return nil
	}
	const most = 3
	lines := output.Wrap(output.Escape(i.Name()+" is "+i.Text("state")+": "+i.Text("reason")), v.Width)
	return lines[:min(len(lines), most)]
}

// heightOfReasons is from what height on a terminal has room for reasons.
const heightOfReasons = 12

// foot says what can be done, or what is wrong.
func (v *View) foot(f *Figures, columns []column) string {
	switch {
	case v.Trouble != "":
		return v.warn(output.Escape(v.Trouble))
	case v.Typing:
		return "filter: " + output.Escape(v.Filter) + "_   enter keeps it, esc clears it"
	case len(v.Detail) > 0:
		return "esc back   q quit"
	}
	parts := []string{"q quit", "enter " + map[bool]string{true: "keys", false: "explain"}[f.Queue == ""], "s sort: " + strings.ToLower(columns[v.Sort%len(columns)].title), "/ filter"}
	if v.Filter != "" {
		parts[3] = "/ filter: " + output.Escape(v.Filter)
	}
	parts = append(parts, map[bool]string{true: "p go on (PAUSED)", false: "p pause"}[v.Paused])
	if f.Queue != "" {
		parts = append(parts, "esc queues")
	}
	return strings.Join(parts, "   ")
}

// widthsOf gives the first column what the others leave. Where that is too little, columns are
// left out from the right.
func widthsOf(columns []column, width int) []int {
	const least = 12
	widths := make([]int, len(columns))
	rest := width
	for i, c := range columns {
		widths[i] = c.width
		if c.width > 0 {
			rest -= c.width + 1
		}
	}
	for i := len(columns) - 1; i > 0 && rest < least; i-- {
		rest += widths[i] + 1
		widths[i] = -1
	}
	widths[0] = max(rest, 1)
	return widths
}

func row(columns []column, widths []int, text func(c column) string) string {
	var cells []string
	for i, c := range columns {
		if widths[i] < 0 {
			continue
		}
		s := clip(text(c), widths[i])
		if i == 0 || c.width == barWidth || c.title == "STATE" {
			s = pad(s, widths[i])
		} else {
			s = strings.Repeat(" ", widths[i]-lipgloss.Width(s)) + s
		}
		cells = append(cells, s)
	}
	return strings.Join(cells, " ")
}

// bar is a share as a bar, with a mark at the fair share.
func bar(share, fair float64) string {
	filled := int(math.Round(min(max(share, 0), 1) * barWidth))
	cells := []rune(strings.Repeat("█", filled) + strings.Repeat("·", barWidth-filled))
	if fair > 0 {
		cells[min(int(fair*barWidth), barWidth-1)] = '│'
	}
	return string(cells)
}

// Short is a number in at most six cells.
func Short(v float64) string {
	switch {
	case v < 100_000:
		return fmt.Sprintf("%.0f", v)
	case v < 10_000_000:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v < 10_000_000_000:
		return fmt.Sprintf("%.0fM", v/1e6)
	}
	return fmt.Sprintf("%.0fG", v/1e9)
}

func perSecond(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v > 0 && v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return Short(v)
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

func clip(s string, width int) string {
	if lipgloss.Width(s) <= width {
		return s
	}
	return lipgloss.NewStyle().MaxWidth(max(width-1, 0)).Render(s) + "…"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-lipgloss.Width(s)))
}

func (v *View) zone() *time.Location {
	if v.Zone == nil {
		return time.UTC
	}
	return v.Zone
}

// spread puts one text to the left and the other to the right.
func (v *View) spread(left, right string) string {
	return left + strings.Repeat(" ", max(2, v.Width-lipgloss.Width(left)-lipgloss.Width(right))) + right
}

func (v *View) strong(s string) string {
	if !v.Color {
		return s
	}
	return lipgloss.NewStyle().Bold(true).Render(s)
}

func (v *View) chosen(s string) string {
	if !v.Color {
		return s
	}
	return lipgloss.NewStyle().Reverse(true).Render(s)
}

func (v *View) warn(s string) string {
	if !v.Color {
		return s
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Red).Render(s)
}
