package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
)

// Need is the right to a queue that a command requires.
type Need uint8

// The rights to queues. Each pattern of a user grants to consume, to produce, or both.
const (
	None    Need = 0
	Consume Need = 1 // take messages out, see what is in them
	Produce Need = 2 // put messages in
	// Manage is both: to change the queue, or messages that are not leased.
	Manage = Consume | Produce
	// Look is either of them: statistics and settings without messages.
	Look Need = 4
)

// pattern is a glob of queues and the rights it grants.
type pattern struct {
	glob   string
	grants Need // Consume, Produce or Manage
}

func (p pattern) String() string {
	switch p.grants {
	case Consume:
		return "%R~" + p.glob
	case Produce:
		return "%W~" + p.glob
	default:
		return "~" + p.glob
	}
}

type digest [sha256.Size]byte

// User is an immutable snapshot of a user's rights. Methods that check a right accept
// nil, which stands for an unrestricted user.
type User struct {
	name    string
	catalog *Catalog

	enabled   bool
	noPass    bool
	passwords []digest

	commands set
	all      bool     // the commands' rules begin with +@all, else with -@all
	rules    []string // behind that, in order

	queues      []pattern
	allQueues   bool
	channels    []string
	allChannels bool

	unrestricted bool
}

// newUser returns a user as ACL SETUSER creates it: off, without rights.
func newUser(name string, c *Catalog) *User {
	return &User{name: name, catalog: c, commands: c.empty()}
}

// clone returns a modifiable copy.
func (u *User) clone() *User {
	n := *u
	n.passwords, n.commands, n.rules = slices.Clone(u.passwords), slices.Clone(u.commands), slices.Clone(u.rules)
	n.queues, n.channels = slices.Clone(u.queues), slices.Clone(u.channels)
	return &n
}

// seal precomputes frequent checks.
func (u *User) seal() *User {
	u.unrestricted = u.allQueues && u.commands.equal(u.catalog.full())
	return u
}

// Name returns the user's name.
func (u *User) Name() string { return u.name }

// Enabled reports whether clients may authenticate as the user.
func (u *User) Enabled() bool { return u.enabled }

// Open reports whether clients may authenticate as the user with any password.
func (u *User) Open() bool { return u.enabled && u.noPass }

// Unrestricted reports whether every command is allowed on every queue. It does not cover
// channels.
func (u *User) Unrestricted() bool { return u == nil || u.unrestricted }

// MayRun reports whether the command with a number of the catalog is allowed.
func (u *User) MayRun(command int) bool {
	return u == nil || u.commands.has(command) || u.catalog.always.has(command)
}

// May reports whether the user has the right need on a queue.
func (u *User) May(need Need, queue string) bool {
	if need == None || u == nil || u.allQueues {
		return true
	}
	var granted Need
	for _, p := range u.queues {
		if p.grants&^granted == 0 || !u.catalog.match(p.glob, queue) {
			continue
		}
		granted |= p.grants
		if need == Look || granted&need == need {
			return true
		}
	}
	return false
}

// MayListen reports whether the user may subscribe to a channel or, with pattern, to a
// pattern of channels, which must literally be one of the user's own.
func (u *User) MayListen(channel string, pattern bool) bool {
	if u == nil || u.allChannels {
		return true
	}
	return slices.ContainsFunc(u.channels, func(own string) bool {
		return own == channel || !pattern && u.catalog.match(own, channel)
	})
}

// EveryQueue reports whether the user has all rights to all queues, also to those that will be created.
func (u *User) EveryQueue() bool { return u == nil || u.allQueues }

// verify reports whether d is the digest of one of the passwords, in constant time.
func (u *User) verify(d digest) bool {
	found := 0
	for i := range u.passwords {
		found |= subtle.ConstantTimeCompare(u.passwords[i][:], d[:])
	}
	return u.enabled && (u.noPass || found == 1)
}

// Flags returns the user's state as ACL GETUSER shows it.
func (u *User) Flags() []string {
	flags := []string{"off"}
	if u.enabled {
		flags[0] = "on"
	}
	if u.noPass {
		flags = append(flags, "nopass")
	}
	return flags
}

// Passwords returns the digests of the passwords in hexadecimal.
func (u *User) Passwords() []string {
	list := make([]string, len(u.passwords))
	for i := range u.passwords {
		list[i] = hex.EncodeToString(u.passwords[i][:])
	}
	return list
}

// Commands returns the rules for commands.
func (u *User) Commands() string {
	base := "-@all"
	if u.all {
		base = "+@all"
	}
	return strings.Join(append([]string{base}, u.rules...), " ")
}

// Queues returns the patterns of queues.
func (u *User) Queues() string {
	if u.allQueues {
		return "~*"
	}
	words := make([]string, len(u.queues))
	for i, p := range u.queues {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}

// Channels returns the patterns of channels.
func (u *User) Channels() string {
	if u.allChannels {
		return "&*"
	}
	words := make([]string, len(u.channels))
	for i, c := range u.channels {
		words[i] = "&" + c
	}
	return strings.Join(words, " ")
}

// String returns the line of rules that recreates the user, with digests of passwords.
func (u *User) String() string {
	words := append([]string{"user", u.name}, u.Flags()...)
	for _, p := range u.Passwords() {
		words = append(words, "#"+p)
	}
	if q := u.Queues(); q != "" {
		words = append(words, q)
	}
	switch {
	case u.allChannels:
		words = append(words, "&*")
	default:
		words = append(words, "resetchannels")
		if c := u.Channels(); c != "" {
			words = append(words, c)
		}
	}
	return strings.Join(append(words, u.Commands()), " ")
}
