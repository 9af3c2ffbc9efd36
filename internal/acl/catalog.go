package acl

import (
	"slices"
	"strings"
)

// Command describes a command for rules.
type Command struct {
	Name       string   // lower case; of a subcommand "container|subcommand"
	Categories []string // without "@"
	Always     bool     // no rule is asked, as for AUTH
}

// Catalog is the immutable list of commands and categories that rules can name.
type Catalog struct {
	names      map[string][]int // a command, and with a container its subcommands
	categories map[string][]int
	always     set
	size       int
	match      func(pattern, s string) bool
}

// NewCatalog returns a catalog. The index of a command in the list is its number, which
// User.MayRun takes. match compares with a glob pattern.
func NewCatalog(commands []Command, categories []string, match func(pattern, s string) bool) *Catalog {
	c := &Catalog{
		names: make(map[string][]int, len(commands)), categories: make(map[string][]int, len(categories)),
		size: len(commands), match: match,
	}
	c.always = c.empty()
	for _, name := range categories {
		c.categories[name] = nil
	}
	for i, cmd := range commands {
		c.names[cmd.Name] = append(c.names[cmd.Name], i)
		if container, _, sub := strings.Cut(cmd.Name, "|"); sub {
			c.names[container] = append(c.names[container], i)
		}
		for _, category := range cmd.Categories {
			c.categories[category] = append(c.categories[category], i)
		}
		if cmd.Always {
			c.always.put(i, true)
		}
	}
	return c
}

// overlap reports whether a rule's name, of commands or of a category, may stand for one of the numbers: that
// of a newer version may stand for any.
func (c *Catalog) overlap(name string, numbers []int) bool {
	own, known := c.names[name]
	if category, is := strings.CutPrefix(name, "@"); is {
		own, known = c.categories[category]
	}
	return !known || slices.ContainsFunc(own, func(n int) bool { return slices.Contains(numbers, n) })
}

// set is a set of commands by number.
type set []uint64

func (c *Catalog) empty() set { return make(set, (c.size+63)/64) }

func (c *Catalog) full() set {
	s := c.empty()
	for i := range c.size {
		s.put(i, true)
	}
	return s
}

func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

func (s set) put(i int, in bool) {
	if in {
		s[i/64] |= 1 << (i % 64)
	} else {
		s[i/64] &^= 1 << (i % 64)
	}
}

func (s set) equal(o set) bool { return slices.Equal(s, o) }
