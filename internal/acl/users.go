package acl

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// DefaultUser is the user of unauthenticated connections. It always exists.
const DefaultUser = "default"

// Errors of Users, in Redis' words.
var (
	ErrUserName      = errors.New("Usernames can't contain spaces or null characters") //nolint:staticcheck // Redis' own words
	ErrRemoveDefault = errors.New("The 'default' user cannot be removed")              //nolint:staticcheck // Redis' own words
	ErrNoFile        = errors.New("no file for users is set: see auth.acl_file")
)

// Account is a stable reference to a user that may change or be deleted.
type Account struct {
	user atomic.Pointer[User]
}

// User returns the current user, nil after its deletion.
func (a *Account) User() *User { return a.user.Load() }

// May reports whether the user has a right on a queue; a deleted one has none.
func (a *Account) May(need Need, queue string) bool {
	u := a.User()
	return u != nil && u.May(need, queue)
}

// Config says where users are defined at startup.
type Config struct {
	Password string   // of the default user; empty: none is needed
	Lines    []string // of users, as ACL LIST writes them; not with File
	File     string   // with such lines; empty: users live as long as the process
}

// Users is the set of all users. It is safe for concurrent use.
type Users struct {
	catalog *Catalog
	cfg     Config

	changing sync.Mutex // one change at a time
	mu       sync.RWMutex
	accounts map[string]*Account
}

// New creates the users that cfg describes. An error names the line, never a password.
func New(c *Catalog, cfg Config) (*Users, error) {
	u := &Users{catalog: c, cfg: cfg, accounts: map[string]*Account{}}
	if cfg.File != "" {
		_, err := u.Load()
		return u, err
	}
	users, err := u.parse("auth.users", cfg.Lines)
	if err != nil {
		return nil, err
	}
	u.replace(users)
	return u, nil
}

// initial returns the default user before any rule: unrestricted, or with the configured
// password.
func (u *Users) initial() *User {
	d := newUser(DefaultUser, u.catalog)
	for _, rule := range []string{"on", "nopass", "allkeys", "allchannels", "allcommands"} {
		d.applyWord(rule)
	}
	if u.cfg.Password != "" {
		d.addPassword(sha256.Sum256([]byte(u.cfg.Password)))
	}
	return d.seal()
}

// parse parses lines of users. The result contains the default user in any case.
func (u *Users) parse(where string, lines []string) (map[string]*User, error) {
	users := map[string]*User{DefaultUser: u.initial()}
	seen := map[string]bool{}
	for i, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		fail := func(err error) error { return fmt.Errorf("%s, line %d: %w", where, i+1, err) }
		if words[0] != "user" || len(words) < 2 {
			return nil, fail(errors.New("must begin with 'user' and a name, as in: user worker on >password ~jobs* +@consume"))
		}
		name := words[1]
		if seen[name] {
			return nil, fail(fmt.Errorf("duplicate user %s", name))
		}
		seen[name] = true
		user, err := newUser(name, u.catalog).with(words[2:])
		if err != nil {
			return nil, fail(fmt.Errorf("user %s: %w", name, err))
		}
		users[name] = user
	}
	return users, nil
}

// with returns the user changed by all the rules.
func (u *User) with(rules []string) (*User, error) {
	n := u.clone()
	for _, rule := range rules {
		if err := n.apply(rule); err != nil {
			return nil, err
		}
	}
	return n.seal(), nil
}

// replace installs a set of users and returns the accounts whose rules changed or which
// were deleted.
func (u *Users) replace(users map[string]*User) (changed []*Account) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, a := range u.accounts {
		next := users[name]
		if next == nil {
			delete(u.accounts, name)
		} else if next.String() == a.User().String() {
			continue
		}
		a.user.Store(next)
		changed = append(changed, a)
	}
	for name, user := range users {
		if u.accounts[name] == nil {
			a := new(Account)
			a.user.Store(user)
			u.accounts[name] = a
		}
	}
	return changed
}

// Account returns the account with a name, or nil.
func (u *Users) Account(name string) *Account {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.accounts[name]
}

// Authenticate returns the account with a name if its user is on and has the password,
// else nil.
func (u *Users) Authenticate(name string, password []byte) *Account {
	given := sha256.Sum256(password)
	a := u.Account(name)
	if a == nil {
		// The same work as for a user with a password.
		(&User{passwords: []digest{{}}}).verify(given)
		return nil
	}
	if user := a.User(); user == nil || !user.verify(given) {
		return nil
	}
	return a
}

// Set creates or changes a user by all the rules or none, and returns its account.
// Without rules a new user has no rights.
func (u *Users) Set(name string, rules []string) (*Account, error) {
	if name == "" || !plain(name) {
		return nil, ErrUserName
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	a := u.Account(name)
	base := newUser(name, u.catalog)
	if a != nil {
		base = a.User()
	}
	next, err := base.with(rules)
	if err != nil {
		return nil, err
	}
	if a == nil {
		a = new(Account)
	}
	a.user.Store(next)
	u.mu.Lock()
	u.accounts[name] = a
	u.mu.Unlock()
	return a, nil
}

// Delete removes users and returns their accounts. Unknown names are ignored.
func (u *Users) Delete(names []string) ([]*Account, error) {
	if err := CheckDelete(names); err != nil {
		return nil, err
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	var gone []*Account
	for _, name := range names {
		if a := u.accounts[name]; a != nil {
			delete(u.accounts, name)
			a.user.Store(nil)
			gone = append(gone, a)
		}
	}
	return gone, nil
}

// List returns the users, by name.
func (u *Users) List() []*User {
	u.mu.RLock()
	defer u.mu.RUnlock()
	list := make([]*User, 0, len(u.accounts))
	for _, a := range u.accounts {
		list = append(list, a.User())
	}
	slices.SortFunc(list, func(a, b *User) int { return strings.Compare(a.name, b.name) })
	return list
}
