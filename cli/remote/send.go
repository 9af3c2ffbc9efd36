package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

// call is a row that is being run.
type call struct {
	*row
	env    *Env
	flags  *pflag.FlagSet
	form   string
	broker *Connection

	ctx  context.Context //nolint:containedctx // of this one run
	args map[string][]string
	out  *output.Printer
	conn *client.Conn // nil before the first command
}

// pageSize is how many rows are asked for at once.
const pageSize = 500

// execute runs the row.
func (c *call) execute(ctx context.Context, args []string) error {
	c.ctx, c.args = ctx, c.named(args)
	var err error
	if c.out, err = c.printer(); err != nil {
		return err
	}
	run := c.run
	if run == nil {
		run = (*call).sendRow
	}
	for i := range c.options {
		if err := c.check(&c.options[i]); err != nil {
			return err
		}
	}
	err = c.confirm()
	if err == nil {
		err = run(c)
	}
	if c.conn != nil {
		_ = c.conn.Close() // what was answered was read
	}
	if flushed := c.out.Flush(); err == nil && flushed != nil {
		err = flushed
	}
	return explained(c.spoken(err))
}

// printer writes in the form that was asked for.
func (c *call) printer() (*output.Printer, error) {
	o := output.Options{Form: output.Form(c.form), Zone: c.env.Zone, Color: c.env.Terminal && variable(c.env.Environ, "NO_COLOR") == ""}
	o.Width, _ = c.terminalWidth()
	switch {
	case c.form == "" && c.env.Terminal:
		o.Form = output.Table
	case c.form == "":
		o.Form = output.Plain
	case !slices.Contains(output.Forms(), c.form):
		return nil, usagef("--output must be one of %s, not %q", strings.Join(output.Forms(), ", "), c.form)
	}
	return output.New(c.env.Stdout, o), nil
}

// named gives the arguments their names.
func (c *call) named(args []string) map[string][]string {
	m := map[string][]string{}
	for _, a := range c.arguments() {
		n := 1
		if a.several {
			n = len(args)
		}
		n = min(n, len(args))
		if n > 0 {
			m[a.name], args = args[:n], args[n:]
		}
	}
	return m
}

// arg is an argument, "" if it is missing.
func (c *call) arg(name string) string {
	if len(c.args[name]) == 0 {
		return ""
	}
	return c.args[name][0]
}

// filled replaces $NAME in a sentence.
func (c *call) filled(sentence string) string {
	for name, values := range c.args {
		sentence = strings.ReplaceAll(sentence, "$"+name, output.Escape(strings.Join(values, ", ")))
	}
	return sentence
}

// confirm asks before something that cannot be undone.
func (c *call) confirm() error {
	if c.ask == "" || c.is("yes") {
		return nil
	}
	if c.env.Confirm == nil {
		return usagef("this cannot be undone: give --yes to do it where nothing can be asked")
	}
	ok, err := c.env.Confirm(c.filled(c.ask) + " [y/N] ")
	if err == nil && !ok {
		err = errDeclined
	}
	return err
}

// do sends a command, on a connection that it opens first if there is none.
func (c *call) do(words ...string) (any, error) {
	if err := c.dial(); err != nil {
		return nil, err
	}
	return c.conn.Do(c.ctx, words...)
}

func (c *call) dial() error {
	if c.conn != nil {
		return nil
	}
	var err error
	c.conn, err = c.broker.Dial(c.ctx)
	return err
}

// command is what is sent: the words of the row, and its options.
func (c *call) command() ([]string, error) {
	var words []string
	for word := range strings.FieldsSeq(c.wire) {
		if name, ok := strings.CutPrefix(word, "$"); ok {
			words = append(words, c.args[name]...)
		} else {
			words = append(words, word)
		}
	}
	if !strings.Contains(c.wire, "$") {
		for _, a := range c.arguments() {
			words = append(words, c.args[a.name]...)
		}
	}
	for i := range c.options {
		more, err := c.words(&c.options[i])
		if err != nil {
			return nil, err
		}
		words = append(words, more...)
	}
	return words, nil
}

// sendRow runs a row that is one command of the broker.
func (c *call) sendRow() error {
	words, err := c.command()
	if err != nil {
		return err
	}
	if c.shape == pages {
		return c.showPages(words)
	}
	reply, err := c.do(words...)
	if err != nil {
		return err
	}
	if list, ok := reply.([]any); c.missing != "" && (reply == nil || reply == int64(0) || ok && len(list) == 0) {
		return MissingError{c.filled(c.missing)}
	}
	return c.show(reply)
}

// show writes a reply in the row's shape.
func (c *call) show(reply any) error {
	switch c.shape {
	case status:
		c.out.Say("%s", c.filled(c.done))
		if !c.out.People() && c.out.Form != output.Plain {
			c.out.Value(reply)
		}
	case count:
		if c.out.People() {
			c.out.Say("%s", counted(c.filled(c.done), client.Int(reply)))
		} else {
			c.out.Value(reply)
		}
	case moment:
		if c.out.People() {
			c.out.Say("%s %s", c.filled(c.done), c.out.Human("at", reply))
		} else {
			c.out.Value(reply)
		}
	case fields:
		m, ok := reply.(client.Map)
		if !ok {
			return fmt.Errorf("the broker answered %T, not a map", reply)
		}
		c.out.Fields(m)
	case list:
		rows := c.rows()
		for _, m := range client.Maps(reply) {
			rows.Add(m)
		}
		rows.Close(c.filled(c.none))
	case raw:
		c.out.Raw(client.Text(reply))
	case value, pages:
		c.out.Value(reply)
	}
	return nil
}

// counted puts a number into a sentence about several, such as "removed %d messages of orders".
func counted(sentence string, n int64) string {
	if n == 1 {
		sentence = strings.NewReplacer("%d messages", "%d message", "%d values", "%d value").Replace(sentence)
	}
	return strings.ReplaceAll(sentence, "%d", strconv.FormatInt(n, 10))
}

// rows begins a list with the row's columns.
func (c *call) rows() *output.Rows { return c.out.Rows(strings.Fields(c.columns)...) }

// showPages walks through all pages, as far as --limit allows.
func (c *call) showPages(words []string) error {
	rows := c.rows()
	more, err := c.walk(words, func(m client.Map) { rows.Add(m) })
	if err != nil && rows.Written() == 0 {
		return err
	}
	rows.Close(c.filled(c.none))
	if err == nil && more {
		fmt.Fprintf(c.env.Stderr, "fila: only the first %d are shown; --limit 0 shows all\n", rows.Written())
	}
	return err
}

// walk hands the rows of all pages to each, and says whether there were more than --limit.
func (c *call) walk(words []string, each func(client.Map)) (more bool, err error) {
	left := int64(-1)
	if c.has("limit") && c.number("limit") > 0 {
		left = c.number("limit")
	}
	err = c.pages(words, func(m client.Map) bool {
		if more = left == 0; more {
			return false
		}
		left--
		each(m)
		return true
	})
	return more, err
}

// pages asks for one page after the other and hands on their rows, until use wants no more.
func (c *call) pages(words []string, use func(client.Map) bool) error {
	for cursor := "0"; ; {
		reply, err := c.do(slices.Concat(words, []string{"CURSOR", cursor, "COUNT", strconv.Itoa(pageSize)})...)
		if err != nil {
			return err
		}
		page, _ := reply.([]any)
		if len(page) != 2 {
			return errors.New("the broker answered with something else than a page")
		}
		for _, m := range client.Maps(page[1]) {
			if !use(m) {
				return nil
			}
		}
		if cursor = client.Text(page[0]); cursor == "0" {
			return nil
		}
	}
}

// now is the time by which relative times count.
func (*call) now() time.Time { return time.Now() }

// pointInTime is a time as a person gives it, in Unix milliseconds: an age such as 90m, a time such
// as 2026-01-31T12:00:00Z or 2026-01-31, or Unix milliseconds.
func pointInTime(s string, now time.Time) (int64, error) {
	if age, err := time.ParseDuration(s); err == nil {
		return now.Add(-age).UnixMilli(), nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("must be an age such as 90m, a time such as 2026-01-31T12:00:00Z, or Unix milliseconds, not %q", s)
}

// asMillis is a duration such as 90s in milliseconds.
func asMillis(s string) (string, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return "", fmt.Errorf("must be a duration such as 90s, not %q", s)
	}
	return strconv.FormatInt(d.Milliseconds(), 10), nil
}
