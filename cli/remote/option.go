package remote

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// register gives a command the flag.
func (o *option) register(fs *pflag.FlagSet) {
	switch o.kind {
	case text:
		fs.String(o.name, "", o.usage)
	case texts, pairs:
		fs.StringArray(o.name, nil, o.usage)
	case number, signed:
		fs.Int64(o.name, 0, o.usage)
	case millis:
		fs.Duration(o.name, 0, o.usage)
	case yes:
		fs.Bool(o.name, false, o.usage)
	case when:
		fs.String(o.name, "", o.usage)
	}
}

// check refuses a value of the flag that cannot be. What is sent is judged by the broker.
func (c *call) check(o *option) error {
	below := o.token == "" && (o.kind == number && c.number(o.name) < 0 || o.kind == millis && c.duration(o.name) < 0)
	if below {
		return usagef("--%s must not be negative, and %s is", o.name, c.flags.Lookup(o.name).Value)
	}
	return nil
}

// words are what is sent for the flag.
func (c *call) words(o *option) ([]string, error) {
	f := c.flags.Lookup(o.name)
	if o.token == "" || !f.Changed {
		return nil, nil
	}
	switch o.kind {
	case texts:
		var words []string
		for _, v := range c.texts(o.name) {
			words = append(words, o.token, v)
		}
		return words, nil
	case pairs:
		var words []string
		for _, v := range c.texts(o.name) {
			name, value, ok := strings.Cut(v, "=")
			if !ok || name == "" {
				return nil, usagef("--%s must be name=value, not %q", o.name, v)
			}
			words = append(words, o.token, name, value)
		}
		return words, nil
	case millis:
		d := c.duration(o.name)
		if d < 0 {
			return nil, usagef("--%s must not be negative, and %s is", o.name, d)
		}
		return []string{o.token, strconv.FormatInt(d.Milliseconds(), 10)}, nil
	case yes:
		if !c.is(o.name) {
			return nil, nil
		}
		return []string{o.token}, nil
	case when:
		at, err := pointInTime(c.text(o.name), c.now())
		if err != nil {
			return nil, usagef("--%s %w", o.name, err)
		}
		return []string{o.token, strconv.FormatInt(at, 10)}, nil
	case text, number, signed:
	}
	return []string{o.token, f.Value.String()}, nil
}

// The values of flags. The names are those of the row's options, so a flag that is missing is a
// mistake in the table.

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (c *call) text(name string) string            { return must(c.flags.GetString(name)) }
func (c *call) texts(name string) []string         { return must(c.flags.GetStringArray(name)) }
func (c *call) number(name string) int64           { return must(c.flags.GetInt64(name)) }
func (c *call) duration(name string) time.Duration { return must(c.flags.GetDuration(name)) }
func (c *call) is(name string) bool                { return must(c.flags.GetBool(name)) }
func (c *call) given(name string) bool             { return c.flags.Changed(name) }
