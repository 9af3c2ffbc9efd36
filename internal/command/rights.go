package command

import "github.com/faisca/fila/internal/acl"

// access returns the right that an argument of the command requires.
func (x *Syntax) access(a *Arg) Access {
	switch {
	case a.Access != ByFlags || a.Type != Key:
		return a.Access
	case x.needs != ByFlags:
		return x.needs
	case x.reads:
		return Consume
	default:
		return Manage
	}
}

// Need is a right to the queue or channel that an argument names.
type Need struct {
	Arg    string
	Access Access
}

// Needs returns the rights that the command requires.
func (x *Syntax) Needs() []Need {
	needs := make([]Need, len(x.guarded))
	for i, g := range x.guarded {
		needs[i] = Need{x.slots[g.slot], g.access}
	}
	return needs
}

// Forbidden returns the first queue or channel among the arguments that the user has no right to, and
// the reason, or empty strings. in.User must be set.
func (in *Input) Forbidden(u *acl.User) (reason, object string) {
	for _, g := range in.Cmd.guarded {
		v, channel := in.values[g.slot], g.access == Listen || g.access == ListenPattern
		if !v.set || in.User == nil && !channel {
			continue
		}
		for _, word := range in.Args[v.first : v.first+v.count] {
			if channel {
				if !u.MayListen(string(word), g.access == ListenPattern) {
					return acl.DeniedChannel, string(word)
				}
				continue
			}
			if !in.User.May(g.access.need(), in.names.get(word)) {
				return acl.DeniedQueue, string(word)
			}
		}
	}
	if in.User == nil || in.Cmd.fills == nil {
		return "", ""
	}
	for _, name := range in.Cmd.fills(in) {
		if !in.User.May(acl.Produce, name) {
			return acl.DeniedQueue, name
		}
	}
	return "", ""
}

// String returns the access as redis-compat.md shows it, after "to".
func (a Access) String() string {
	switch a {
	case Consume:
		return "consume from"
	case Produce:
		return "produce to"
	case Look:
		return "consume from or produce to"
	case Listen, ListenPattern:
		return "listen to"
	case ByFlags, Manage:
	}
	return "consume from and produce to"
}

// need returns the right of rules that grants the access.
func (a Access) need() acl.Need {
	switch a {
	case Consume:
		return acl.Consume
	case Produce:
		return acl.Produce
	case Look:
		return acl.Look
	case ByFlags, Manage, Listen, ListenPattern:
	}
	return acl.Manage
}
