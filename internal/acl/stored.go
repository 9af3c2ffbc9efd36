package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The users of a cluster are lines in its store, as [User.String] writes them. The functions here turn
// these into users and compute the lines of changes; what is in force changes with Adopt only.

// Lines returns the lines of all users by name.
func (u *Users) Lines() map[string]string {
	lines := map[string]string{}
	for _, user := range u.List() {
		lines[user.name] = user.String()
	}
	return lines
}

// FileLines returns the lines of the users in the file, by name.
func (u *Users) FileLines() (map[string]string, error) {
	users, err := u.parseFile()
	if err != nil {
		return nil, err
	}
	lines := make(map[string]string, len(users))
	for name, user := range users {
		lines[name] = user.String()
	}
	return lines, nil
}

// Change returns the line of a user changed by all the rules, or the error of one of them. line is its
// present one; empty: there is no such user.
func (u *Users) Change(name, line string, rules []string) (string, error) {
	if name == "" || !plain(name) {
		return "", ErrUserName
	}
	user := newUser(name, u.catalog)
	if line != "" {
		var err error
		if user, err = u.stored(name, line); err != nil {
			return "", err
		}
	}
	next, err := user.with(rules)
	if err != nil {
		return "", err
	}
	return next.String(), nil
}

// CheckDelete refuses to delete the default user.
func CheckDelete(names []string) error {
	if slices.Contains(names, DefaultUser) {
		return ErrRemoveDefault
	}
	return nil
}

// Adopt replaces the users by those of lines and returns the accounts that have changed or were deleted.
// The error names the users whose lines this version does not understand: they are off and have no
// rights.
func (u *Users) Adopt(lines map[string]string) (changed []*Account, err error) {
	u.changing.Lock()
	defer u.changing.Unlock()
	users := map[string]*User{DefaultUser: u.initial()}
	for name, line := range lines {
		if a := u.Account(name); a != nil && a.User().String() == line {
			users[name] = a.User()
			continue
		}
		user, bad := u.stored(name, line)
		if bad != nil {
			user = newUser(name, u.catalog).seal()
			err = errors.Join(err, bad)
		}
		users[name] = user
	}
	return u.replace(users), err
}

// stored returns the user of a line. A newer version may have written it, with commands and categories
// that this one does not know: these rules are kept, without effect. What such a category takes away is
// unknown, so its removal takes away all commands.
func (u *Users) stored(name, line string) (*User, error) {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "user" || words[1] != name {
		return nil, fmt.Errorf("user %s: the line in the store is not that of this user", name)
	}
	user := newUser(name, u.catalog)
	for _, rule := range words[2:] {
		err := user.apply(rule)
		if r, ok := errors.AsType[*RuleError](err); ok && r.Reason == reasonUnknown {
			user.rules = append(user.rules, strings.ToLower(rule))
			if strings.HasPrefix(rule, "-@") {
				user.commands = u.catalog.empty()
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
	}
	return user.seal(), nil
}
