package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
)

// Need is what a command needs to be allowed on a queue.
type Need uint8

// What a command may need. Each pattern of a user grants to consume, to produce
// or both.
const (
	None    Need = 0
	Consume Need = 1 // take messages out, see what is in them
	Produce Need = 2 // put messages in
	// Manage is both: to change the queue, or messages that nobody has leased.
	Manage = Consume | Produce
	// Look is either of them: figures and settings, no message.
	Look Need = 4
)

// pattern is a glob of queues and what it grants.
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

// User is a name and its rights at one moment. It never changes. Methods that
// ask for a right may be called on nil, which stands for a user who may do
// everything.
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

// newUser is a user as ACL SETUSER makes it: off, and nothing allowed.
func newUser(name string, c *Catalog) *User {
	return &User{name: name, catalog: c, commands: c.empty()}
}

// clone returns a copy that can be changed.
func (u *User) clone() *User {
	n := *u
	n.passwords, n.commands, n.rules = slices.Clone(u.passwords), slices.Clone(u.commands), slices.Clone(u.rules)
	n.queues, n.channels = slices.Clone(u.queues), slices.Clone(u.channels)
	return &n
}

// seal works out what is asked often.
func (u *User) seal() *User {
	u.unrestricted = u.allQueues && u.commands.equal(u.catalog.full())
	return u
}

// Name is the user's name.
func (u *User) Name() string { return u.name }

// Enabled tells whether anybody may authenticate as the user.
func (u *User) Enabled() bool { return u.enabled }

// Open tells whether anybody may authenticate as the user with any password.
func (u *User) Open() bool { return u.enabled && u.noPass }

// Unrestricted tells whether every command is allowed on every queue. It says
// nothing of channels.
func (u *User) Unrestricted() bool { return u == nil || u.unrestricted }

// MayRun tells whether the command of that number in the catalog is allowed.
func (u *User) MayRun(command int) bool {
	return u == nil || u.commands.has(command) || u.catalog.always.has(command)
}

// May tells whether the user has what is needed on a queue.
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

// MayListen tells whether the user may subscribe to a channel; or, with pattern,
// to a pattern of channels, which must then be one of the user's own, literally.
func (u *User) MayListen(channel string, pattern bool) bool {
	if u == nil || u.allChannels {
		return true
	}
	return slices.ContainsFunc(u.channels, func(own string) bool {
		return own == channel || !pattern && u.catalog.match(own, channel)
	})
}

// verify tells whether d is the digest of one of the passwords. All are looked
// at, so that the time says nothing.
func (u *User) verify(d digest) bool {
	found := 0
	for i := range u.passwords {
		found |= subtle.ConstantTimeCompare(u.passwords[i][:], d[:])
	}
	return u.enabled && (u.noPass || found == 1)
}

// Flags are the words of the user's state, as ACL GETUSER shows them.
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

// Passwords are the digests of the passwords, in hexadecimal.
func (u *User) Passwords() []string {
	list := make([]string, len(u.passwords))
	for i := range u.passwords {
		list[i] = hex.EncodeToString(u.passwords[i][:])
	}
	return list
}

// Commands are the rules of the commands.
func (u *User) Commands() string {
	base := "-@all"
	if u.all {
		base = "+@all"
	}
	return strings.Join(append([]string{base}, u.rules...), " ")
}

// Queues are the patterns of queues.
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

// Channels are the patterns of channels.
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

// String is the line from which the user can be made again. It holds digests of
// passwords.
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
