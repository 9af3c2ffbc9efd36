package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/storage"
)

// The users of a cluster in the simulation of several nodes. A change reads the line of a user and adds
// a mark to it, as ACL SETUSER adds rules. So no change may undo another one: a line has every mark that
// was acknowledged, and none that was refused as not having happened.

// simUsers is what the clients know of the users.
type simUsers struct {
	made    int
	present map[string][]string // acknowledged marks by user
	absent  map[string]bool     // refused marks
}

func newSimUsers() simUsers {
	return simUsers{present: map[string][]string{}, absent: map[string]bool{}}
}

// setUser lets a client change a user, or two of them at once.
func (c *simCluster) setUser(cl *simClient) {
	s := c.sim
	c.users.made++
	mark := fmt.Sprintf("m%d", c.users.made)
	names := []string{"u1", "u2", "u3"}[s.rng.IntN(3):]
	names = names[:1+s.rng.IntN(len(names))]
	acknowledged := func() {
		for _, name := range names {
			c.users.present[name] = append(c.users.present[name], mark)
		}
		c.seen.users++
	}
	s.late = acknowledged
	s.submit(cl, func(tx *Tx) error {
		lines := map[string]string{}
		for _, name := range names {
			if !s.replaced {
				c.users.check(&s.oracle, name, tx.User(name))
			}
			lines[name] = strings.TrimSpace(tx.User(name) + " " + mark)
		}
		return tx.SetUsers(lines)
	}, func(err error) {
		switch {
		case err == nil:
			acknowledged()
		case errors.Is(err, ErrTakeover):
			c.users.absent[mark] = true
		case !refusal(err):
			s.oracle.fail("set a user: %v", err)
		}
	})
}

// check compares the line of a user with what the clients know.
func (u *simUsers) check(o *oracle, name, line string) {
	marks := strings.Fields(line)
	for _, mark := range u.present[name] {
		if !slices.Contains(marks, mark) {
			o.fail("user %s has lost the change %s: %q", name, mark, line)
		}
	}
	for i, mark := range marks {
		if u.absent[mark] || slices.Contains(marks[:i], mark) {
			o.fail("user %s has the change %s, which was refused, or has it twice: %q", name, mark, line)
		}
	}
}

// endUsers compares what the stores have in the end.
func (c *simCluster) endUsers() {
	for _, n := range c.nodes {
		version, lines, err := storage.ReadUsers(n.store, 0)
		if err != nil || version == 0 || lines["default"] != "seeded" {
			c.oracle.fail("node %d: users %v of version %d, %v", n.id, lines, version, err)
		}
		for name := range c.users.present {
			c.users.check(&c.oracle, name, lines[name])
		}
	}
}
