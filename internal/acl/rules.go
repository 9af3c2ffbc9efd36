package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// RuleError is an invalid rule.
type RuleError struct {
	Rule   string // as it was given: it may hold a password
	Reason string
}

// Error returns a text without what may be a password.
func (e *RuleError) Error() string {
	rule := e.Rule
	if rule != "" && strings.ContainsRune("><#!", rune(rule[0])) {
		rule = rule[:1] + "..."
	}
	return "rule '" + rule + "': " + e.Reason
}

// The reasons, in Redis' own words where it has them.
const (
	reasonSyntax      = "Syntax error"
	reasonUnknown     = "Unknown command or category name in ACL"
	reasonNoPassword  = "The password you are trying to remove from the user does not exist"
	reasonHash        = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
	reasonAllKeys     = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
	reasonAllChannels = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
	reasonSelector    = "Selectors are not supported: give these rights to a user of their own"
)

// apply changes the user by one rule.
func (u *User) apply(rule string) error {
	if u.applyWord(strings.ToLower(rule)) {
		return nil
	}
	if rule == "" {
		return &RuleError{rule, reasonSyntax}
	}
	reason := ""
	switch arg := rule[1:]; rule[0] {
	case '>':
		u.addPassword(sha256.Sum256([]byte(arg)))
	case '<':
		reason = u.removePassword(sha256.Sum256([]byte(arg)))
	case '#', '!':
		d, ok := parseDigest(arg)
		switch {
		case !ok:
			reason = reasonHash
		case rule[0] == '#':
			u.addPassword(d)
		default:
			reason = u.removePassword(d)
		}
	case '~':
		reason = u.addQueues(arg, Manage)
	case '%':
		reason = u.addGranting(arg)
	case '&':
		reason = u.addChannels(arg)
	case '+', '-':
		reason = u.setCommands(strings.ToLower(arg), rule[0] == '+')
	case '(':
		reason = reasonSelector
	default:
		reason = reasonSyntax
	}
	if reason != "" {
		return &RuleError{rule, reason}
	}
	return nil
}

// applyWord applies a rule that is a keyword, and reports whether it is one.
func (u *User) applyWord(word string) bool {
	switch word {
	case "on":
		u.enabled = true
	case "off":
		u.enabled = false
	case "nopass":
		u.noPass, u.passwords = true, nil
	case "resetpass":
		u.noPass, u.passwords = false, nil
	case "allcommands", "+@all":
		u.all, u.rules, u.commands = true, nil, u.catalog.full()
	case "nocommands", "-@all":
		u.all, u.rules, u.commands = false, nil, u.catalog.empty()
	case "allkeys", "~*", "%rw~*", "%wr~*":
		u.allQueues, u.queues = true, nil
	case "resetkeys":
		u.allQueues, u.queues = false, nil
	case "allchannels", "&*":
		u.allChannels, u.channels = true, nil
	case "resetchannels":
		u.allChannels, u.channels = false, nil
	case "reset":
		*u = *newUser(u.name, u.catalog)
	case "sanitize-payload", "skip-sanitize-payload", "clearselectors":
		// Redis writes these into files; they have no meaning here.
	default:
		return false
	}
	return true
}

func (u *User) addPassword(d digest) {
	u.noPass = false
	if !slices.Contains(u.passwords, d) {
		u.passwords = append(u.passwords, d)
	}
}

func (u *User) removePassword(d digest) (reason string) {
	i := slices.Index(u.passwords, d)
	if i < 0 {
		return reasonNoPassword
	}
	u.passwords = slices.Delete(u.passwords, i, i+1)
	return ""
}

func parseDigest(s string) (d digest, ok bool) {
	if len(s) != 2*len(d) || strings.ToLower(s) != s {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(s))
	return d, err == nil
}

// addGranting adds a pattern with its rights: "R~glob", "W~glob".
func (u *User) addGranting(arg string) (reason string) {
	letters, glob, ok := strings.Cut(arg, "~")
	if !ok || letters == "" {
		return reasonSyntax
	}
	var grants Need
	for _, l := range strings.ToLower(letters) {
		switch {
		case l == 'r' && grants&Consume == 0:
			grants |= Consume
		case l == 'w' && grants&Produce == 0:
			grants |= Produce
		default:
			return reasonSyntax
		}
	}
	return u.addQueues(glob, grants)
}

func (u *User) addQueues(glob string, grants Need) (reason string) {
	if !plain(glob) {
		return reasonSyntax
	}
	if u.allQueues {
		return reasonAllKeys
	}
	for i := range u.queues {
		if u.queues[i].glob == glob {
			u.queues[i].grants |= grants
			return ""
		}
	}
	u.queues = append(u.queues, pattern{glob, grants})
	return ""
}

func (u *User) addChannels(glob string) (reason string) {
	if !plain(glob) {
		return reasonSyntax
	}
	if u.allChannels {
		return reasonAllChannels
	}
	if !slices.Contains(u.channels, glob) {
		u.channels = append(u.channels, glob)
	}
	return ""
}

// plain reports whether a word can be part of a line of rules.
func plain(s string) bool { return !strings.ContainsAny(s, " \t\r\n\v\f\x00") }

// setCommands allows or forbids a command, a container with its subcommands, a
// subcommand or a category.
func (u *User) setCommands(name string, allow bool) (reason string) {
	category, isCategory := strings.CutPrefix(name, "@")
	numbers, known := u.catalog.names[name]
	if isCategory {
		numbers, known = u.catalog.categories[category]
	}
	if !known {
		return reasonUnknown
	}
	for _, n := range numbers {
		u.commands.put(n, allow)
	}
	// An older rule that this one covers is redundant.
	u.rules = slices.DeleteFunc(u.rules, func(old string) bool {
		return old[1:] == name || strings.HasPrefix(old[1:], name+"|")
	})
	sign := "-"
	if allow {
		sign = "+"
	}
	if !u.covers(name, numbers, sign[0]) {
		u.rules = append(u.rules, sign+name)
	}
	return ""
}

// covers reports whether a new rule says what an older one says of a whole container, or the first of all
// commands. A category covers nothing: a later version may have others in it.
func (u *User) covers(name string, numbers []int, sign byte) bool {
	container, _, _ := strings.Cut(name, "|")
	for _, old := range slices.Backward(u.rules) {
		if old[0] == sign && old[1:] == container {
			return true
		}
		if old[0] != sign && u.catalog.overlap(old[1:], numbers) {
			return false
		}
	}
	return u.all == (sign == '+')
}
