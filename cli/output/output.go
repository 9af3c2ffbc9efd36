// Package output writes replies of the broker in the four forms of the command line:
//
//	table  for people: aligned columns with a heading, times and durations in words
//	plain  for cut and awk: the same columns, separated by tabs, without a heading, values as on the wire
//	json   one document
//	jsonl  a document on each line, as it comes
//
// The fields have the names of the wire in all of them. JSON has all fields, a table those that
// the command chose. Text in tables and in plain is escaped: what a tenant calls itself does not
// reach the terminal as control characters.
package output

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/faisca/fila/internal/client"
)

// Form is one of the forms.
type Form string

// The forms.
const (
	Table Form = "table"
	Plain Form = "plain"
	JSON  Form = "json"
	JSONL Form = "jsonl"
)

// Forms are all of them.
func Forms() []string { return []string{string(Table), string(Plain), string(JSON), string(JSONL)} }

// Options say how a printer writes.
type Options struct {
	Form  Form
	Color bool           // headings of tables are bold
	Zone  *time.Location // of times in tables; nil: UTC
	Width int            // of the terminal, in cells: no line of a table is wider; 0: not known
}

// Printer writes replies. Its methods do not return errors of writing: Flush does.
type Printer struct {
	w *bufio.Writer
	Options
}

// New returns a printer.
func New(w io.Writer, o Options) *Printer {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	return &Printer{w: bufio.NewWriter(w), Options: o}
}

// Flush writes what is pending, and returns the first error of all writes.
func (p *Printer) Flush() error { return p.w.Flush() }

// People says whether the form is for people: they are told what was done.
func (p *Printer) People() bool { return p.Form == Table }

// Say tells people something, in a table only.
func (p *Printer) Say(format string, args ...any) { p.Paragraph("", fmt.Sprintf(format, args...)) }

// Paragraph is Say with an indent, in lines that the terminal has room for.
func (p *Printer) Paragraph(indent, text string) {
	if !p.People() {
		return
	}
	room := 0
	if p.Width > 0 {
		room = max(p.Width-len(indent), cellLeast)
	}
	for _, line := range Wrap(text, room) {
		fmt.Fprintln(p.w, indent+line)
	}
}

// Raw writes a text as it is, with a line's end if it has none; in JSON as a string.
func (p *Printer) Raw(text string) {
	if p.Form == JSON || p.Form == JSONL {
		p.document(text)
		return
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	fmt.Fprint(p.w, text)
}

// Value writes any reply: text, number, or what it contains, indented.
func (p *Printer) Value(v any) {
	switch p.Form {
	case JSON, JSONL:
		p.document(v)
	case Plain, Table:
		p.tree(v, "")
	}
}

// tree writes a reply as lines; what is nested is indented.
func (p *Printer) tree(v any, indent string) {
	switch v := v.(type) {
	case client.Map:
		for _, f := range v {
			p.branch(indent+Escape(f.Name)+":", f.Value, indent)
		}
	case []any:
		for _, item := range v {
			if !nested(item) {
				p.tree(item, indent)
				continue
			}
			p.branch(indent+"-", item, indent)
		}
	default:
		fmt.Fprintf(p.w, "%s%s\n", indent, Escape(client.Text(v)))
	}
}

func (p *Printer) branch(head string, v any, indent string) {
	if nested(v) {
		fmt.Fprintln(p.w, head)
		p.tree(v, indent+"  ")
		return
	}
	fmt.Fprintf(p.w, "%s %s\n", head, Escape(client.Text(v)))
}

// nested says whether a value has lines of its own.
func nested(v any) bool {
	switch v := v.(type) {
	case client.Map:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return false
}

// Fields writes a map, one field on each line.
func (p *Printer) Fields(m client.Map) {
	switch p.Form {
	case JSON, JSONL:
		p.document(m)
	case Plain:
		for _, f := range m {
			fmt.Fprintf(p.w, "%s\t%s\n", Escape(f.Name), p.cell(f.Name, f.Value))
		}
	case Table:
		width := 0
		for _, f := range m {
			width = max(width, uniseg.StringWidth(Escape(f.Name)))
		}
		for _, f := range m {
			room := 0
			if p.Width > 0 {
				room = max(p.Width-width-columnGap, cellLeast)
			}
			for i, line := range Wrap(p.cell(f.Name, f.Value), room) {
				name := p.bold(pad(Escape(f.Name), width))
				if i > 0 {
					name = strings.Repeat(" ", width)
				}
				fmt.Fprintf(p.w, "%s  %s\n", name, line)
			}
		}
	}
}

// document writes a value as JSON: indented, or on one line.
func (p *Printer) document(v any) {
	text := client.AppendJSON(nil, v)
	if p.Form == JSON {
		text = indented(text, "")
	}
	p.w.Write(append(text, '\n')) //nolint:errcheck // Flush returns it
}

func indented(text []byte, prefix string) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, text, prefix, "  "); err != nil {
		return text // AppendJSON writes JSON
	}
	return b.Bytes()
}

// Rows writes maps as the rows of a table. All printers but that of a table write each at once.
type Rows struct {
	p       *Printer
	columns []string
	spare   []string // the optional ones among them, the first to be left out last
	left    []string // those of them that a table has no room for
	want    []int    // how wide the columns would be
	widths  []int
	pending [][]string // of a table, until their widths are known
	written int
	headed  bool
}

// pendingMax is how many rows of a table are measured together. Later ones get wider columns
// where they need them.
const pendingMax = 1000

// cellMax is how wide a cell of a table may be, but for those of the last column on a terminal of known width. What
// is beside the names of fields has cellLeast at least.
const (
	cellMax   = 60
	cellLeast = 20
)

// Rows begins a list whose tables have these columns. Those that end in "?" are optional: a table has them where the
// terminal has room. Those that end in "??" are left out before them, later ones before earlier ones. Close ends the
// list, and names what was left out.
func (p *Printer) Rows(columns ...string) *Rows {
	r := &Rows{p: p, columns: make([]string, len(columns)), want: make([]int, len(columns))}
	var first []string
	for i, c := range columns {
		r.columns[i] = strings.TrimRight(c, "?")
		switch strings.TrimPrefix(c, r.columns[i]) {
		case "?":
			r.spare = append(r.spare, r.columns[i])
		case "??":
			first = append(first, r.columns[i])
		}
	}
	r.spare = append(r.spare, first...)
	return r
}

// Add writes a row.
func (r *Rows) Add(m client.Map) {
	p := r.p
	switch p.Form {
	case JSON:
		before := ","
		if r.written == 0 {
			before = "["
		}
		fmt.Fprintf(p.w, "%s\n  %s", before, indented(client.AppendJSON(nil, m), "  "))
	case JSONL:
		p.document(m)
	case Plain, Table:
		cells := make([]string, len(r.columns))
		for i, name := range r.columns {
			cells[i] = p.cell(name, m.Get(name))
		}
		if p.Form == Plain {
			fmt.Fprintln(p.w, strings.Join(cells, "\t"))
		} else {
			r.pending = append(r.pending, cells)
		}
	}
	r.written++
	if len(r.pending) == pendingMax {
		r.Show()
	}
}

// Show writes the rows of a table that are pending.
func (r *Rows) Show() {
	if len(r.pending) == 0 {
		return
	}
	head := make([]string, len(r.columns))
	for i, name := range r.columns {
		head[i] = title(name)
	}
	for _, cells := range append([][]string{head}, r.pending...) {
		for i, c := range cells {
			r.want[i] = max(r.want[i], uniseg.StringWidth(c))
		}
	}
	if !r.headed {
		r.leave()
	}
	r.widths = fitted(shown(r, r.want), shown(r, r.whole()), r.p.Width)
	if !r.headed {
		r.headed = true
		fmt.Fprintln(r.p.w, r.p.bold(r.line(head)))
	}
	for _, cells := range r.pending {
		fmt.Fprintln(r.p.w, r.line(cells))
	}
	r.pending = r.pending[:0]
}

// leave leaves out optional columns until the others have room to be read.
func (r *Rows) leave() {
	for len(r.spare) > 0 && !legible(shown(r, r.want), shown(r, r.whole()), r.p.Width) {
		last := len(r.spare) - 1
		r.left = append(r.left, r.spare[last])
		r.spare = r.spare[:last]
	}
	slices.Reverse(r.left)
}

// whole are the widths of the columns that are no use when cut: ids and times. Those of others are 0.
func (r *Rows) whole() []int {
	widths := make([]int, len(r.columns))
	for i, name := range r.columns {
		if name == "id" || isTime(name) {
			widths[i] = r.want[i]
		}
	}
	return widths
}

// shown are those of one value for each column that the table has.
func shown[T any](r *Rows, all []T) []T {
	some := make([]T, 0, len(all))
	for i, v := range all {
		if !slices.Contains(r.left, r.columns[i]) {
			some = append(some, v)
		}
	}
	return some
}

func (r *Rows) line(cells []string) string {
	cells = shown(r, cells)
	padded := make([]string, len(cells))
	for i, c := range cells {
		padded[i] = pad(clip(c, r.widths[i]), r.widths[i])
	}
	return strings.TrimRight(strings.Join(padded, "  "), " ")
}

// Written is how many rows there were.
func (r *Rows) Written() int { return r.written }

// Close ends the list. none is what people are told of an empty one.
func (r *Rows) Close(none string) {
	r.Show()
	switch {
	case r.p.Form == JSON && r.written > 0:
		fmt.Fprintln(r.p.w, "\n]")
	case r.p.Form == JSON:
		fmt.Fprintln(r.p.w, "[]")
	case r.written == 0:
		r.p.Say("%s", none)
	case len(r.left) > 0:
		names := make([]string, len(r.left))
		for i, name := range r.left {
			names[i] = title(name)
		}
		r.p.Say("not shown, the terminal is too narrow: %s", strings.Join(names, ", "))
	}
}

func (p *Printer) bold(s string) string {
	if !p.Color {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-uniseg.StringWidth(s)))
}

// clip shortens a cell to a width, with a sign that something is missing.
func clip(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	var b strings.Builder
	used := 0
	for g := uniseg.NewGraphemes(s); g.Next() && used+g.Width() < width; used += g.Width() {
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}

// cell is a value in a table or in plain.
func (p *Printer) cell(name string, v any) string {
	if p.Form == Table {
		return p.Human(name, v)
	}
	return Escape(client.Text(v))
}

// Human is a value as people read it, by the name of its field: *_at and *_until are times, *_ms and *_us durations, *_bytes
// sizes, rates are of a second, shares are percentages, a limit that is not set is none, and nil is a dash.
func (p *Printer) Human(name string, v any) string {
	n, number := v.(int64)
	switch {
	case unset(name, v):
		return "no limit"
	case v == nil, v == "":
		return "-"
	case number && isTime(name):
		if n == 0 {
			return "-"
		}
		return time.UnixMilli(n).In(p.Zone).Format("2006-01-02 15:04:05")
	case number && n == 0 && configured(name):
		return "as configured"
	case number:
		return quantity(name, n)
	case name == "share" || name == "fair_share":
		return fmt.Sprintf("%.1f%%", 100*client.Float(v))
	case isSignal(name):
		return strconv.FormatFloat(math.Round(1e4*client.Float(v))/1e4, 'f', -1, 64)
	case name == "velocity":
		return strconv.FormatFloat(client.Float(v), 'g', 3, 64) + "/s"
	case isRate(name):
		return Escape(client.Text(v)) + "/s"
	}
	if counts, ok := v.(client.Map); ok && len(counts) > 0 && !slices.ContainsFunc(counts, func(f client.Field) bool { _, n := f.Value.(int64); return !n }) {
		items := make([]string, len(counts))
		for i, f := range counts {
			items[i] = fmt.Sprintf("%s (%d)", Escape(f.Name), f.Value)
		}
		return strings.Join(items, ", ")
	}
	if list, ok := v.([]any); ok && !slices.ContainsFunc(list, nested) {
		if len(list) == 0 {
			return "-"
		}
		items := make([]string, len(list))
		for i, item := range list {
			items[i] = p.Human(name, item)
		}
		return strings.Join(items, ", ")
	}
	return Escape(client.Text(v))
}

// quantity is a number with the unit that its field has.
func quantity(name string, n int64) string {
	switch {
	case strings.HasSuffix(name, "_ms"):
		return Duration(time.Duration(n) * time.Millisecond)
	case strings.HasSuffix(name, "_us"):
		return Duration(time.Duration(n) * time.Microsecond)
	case strings.HasSuffix(name, "_bytes"), name == "bytes", name == "memory_used", name == "memory_limit", name == "memory_held":
		return Size(n)
	case strings.HasSuffix(name, "_percent"):
		return fmt.Sprintf("%d%%", n)
	case isRate(name):
		return fmt.Sprintf("%d/s", n)
	}
	return fmt.Sprint(n)
}

// isSignal says whether a field is a sum of a signal.
func isSignal(name string) bool {
	return slices.Contains([]string{"1m", "5m", "1h", "24h", "all"}, name)
}

// isRate says whether a field is a number in a second.
func isRate(name string) bool { return name == "rate" || strings.HasSuffix(name, "_rate") }

// unset says whether a field is a limit that is not set: 0, or nil where 0 would be one.
func unset(name string, v any) bool {
	switch name {
	case "max_depth", "key_max_depth", "max_attempts", "ttl_ms", "memory_limit":
		return v == int64(0)
	case "rate", "concurrency", "redrive_rate":
		return v == nil
	}
	return false
}

// configured says whether 0 stands for a value of the configuration.
func configured(name string) bool {
	return name == "lua_timeout_ms" || name == "lua_memory_bytes" || name == "breaker_errors"
}

// Size is a number of bytes: 512 B, 64 KiB, 1.5 GiB.
func Size(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/step, 0
	for ; size >= step && unit < 3; unit++ {
		size /= step
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", size), ".0") + " " + [...]string{"KiB", "MiB", "GiB", "TiB"}[unit]
}

func isTime(name string) bool {
	return strings.HasSuffix(name, "_at") || strings.HasSuffix(name, "_until") || name == "at" || name == "upcoming"
}

// heading is the name of a column whose values have their units.
func heading(name string) string {
	for _, unit := range []string{"_ms", "_us", "_bytes", "_percent"} {
		name = strings.TrimSuffix(name, unit)
	}
	return name
}

// title is the head of a column.
func title(name string) string { return strings.ToUpper(heading(name)) }

// Duration is a duration in its two largest units: 40µs, 350ms, 4.2s, 3m20s, 5h10m, 12d3h.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d > 0 && d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + "s"
	case d < time.Hour:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "m")
	}
	return two(d, day, "d", time.Hour, "h")
}

func two(d, large time.Duration, l string, small time.Duration, s string) string {
	text := fmt.Sprintf("%d%s", d/large, l)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}
