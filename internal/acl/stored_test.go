package acl

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func adopt(t *testing.T, u *Users, lines map[string]string) (changed []string) {
	t.Helper()
	names := map[*Account]string{}
	for _, user := range u.List() {
		names[u.Account(user.Name())] = user.Name()
	}
	accounts, err := u.Adopt(lines)
	if err != nil {
		t.Error(err)
	}
	for _, a := range accounts {
		changed = append(changed, names[a])
	}
	slices.Sort(changed)
	return changed
}

func TestLinesRecreateTheUsers(t *testing.T) {
	a := make1(t, Config{Password: "p", Lines: []string{"user w on >secret %R~q* &c +@read -get", "user off"}})
	b := make1(t, Config{})
	adopt(t, b, a.Lines())
	if !maps.Equal(a.Lines(), b.Lines()) {
		t.Errorf("got %v, want %v", b.Lines(), a.Lines())
	}
	if b.Authenticate("default", []byte("p")) == nil || b.Authenticate("w", []byte("secret")) == nil {
		t.Error("the passwords are lost")
	}
}

func TestAdoptedUsersReplaceAllOthers(t *testing.T) {
	u := make1(t, Config{Lines: []string{"user gone on", "user same on nopass", "user other on +get"}})
	lines := u.Lines()
	delete(lines, "gone")
	lines["other"] = "user other on resetchannels -@all +put"
	lines["new"] = "user new off resetchannels -@all"
	if got := adopt(t, u, lines); !slices.Equal(got, []string{"gone", "other"}) {
		t.Errorf("changed are %v", got)
	}
	if !maps.Equal(u.Lines(), lines) {
		t.Errorf("got %v", u.Lines())
	}
	if got := adopt(t, u, lines); got != nil {
		t.Errorf("the same lines have changed %v", got)
	}
	if adopt(t, u, nil); u.Account(DefaultUser) == nil || len(u.List()) != 1 {
		t.Errorf("without lines there are %v", u.Lines())
	}
}

func TestAChangeOfALineIsThatOfTheUser(t *testing.T) {
	u := make1(t, Config{})
	for _, x := range []struct{ line, rules, want string }{
		{"", "", "user w off resetchannels -@all"},
		{"", "on nopass +get", "user w on nopass resetchannels -@all +get"},
		{"user w on nopass resetchannels -@all +get", "+put -get", "user w on nopass resetchannels -@all +put"},
		{"user w on nopass ~* &* +@all", "reset", "user w off resetchannels -@all"},
	} {
		if got, err := u.Change("w", x.line, strings.Fields(x.rules)); err != nil || got != x.want {
			t.Errorf("%q with %q: %q, %v", x.line, x.rules, got, err)
		}
	}
	for name, rules := range map[string]string{"": "on", "a b": "on", "w": "+nosuch"} {
		if got, err := u.Change(name, "", strings.Fields(rules)); err == nil {
			t.Errorf("%q with %q: %q", name, rules, got)
		}
	}
	if _, err := u.Change("w", "user other on", nil); err == nil {
		t.Error("the line of another user is changed")
	}
	if u.Account("w") != nil {
		t.Error("a change of a line is in force")
	}
}

// Lines of a newer version never give more than they say, and keep what this version does not know.
func TestRulesOfANewerVersionAreKept(t *testing.T) {
	u := make1(t, Config{})
	for line, runs1 := range map[string]string{
		"user w on nopass resetchannels -@all +get +future":         "01",
		"user w on nopass resetchannels +@all -future":              "012345",
		"user w on nopass resetchannels -@all +get +@future":        "01",
		"user w on nopass resetchannels +@all -@future":             "0",
		"user w on nopass resetchannels +@all -@future +get":        "01",
		"user w on nopass resetchannels -@all +get +future|part":    "01",
		"user w on nopass resetchannels -@all -future +@read +box1": "014",
	} {
		adopt(t, u, map[string]string{"w": line})
		user := u.Account("w").User()
		if user.String() != line || runs(user) != runs1 {
			t.Errorf("%q: is %q and runs %s, want %s", line, user, runs(user), runs1)
		}
		if got, err := u.Change("w", line, []string{"off"}); err != nil || got != strings.Replace(line, " on ", " off ", 1) {
			t.Errorf("changed: %q, %v", got, err)
		}
	}
	if u.Account("w").User().Unrestricted() {
		t.Error("a user whose rules are not understood is unrestricted")
	}
	changed, err := u.Adopt(map[string]string{"w": "user w on nopass +@all ~* &* [selector]"})
	if err == nil || !strings.Contains(err.Error(), "user w") || len(changed) != 1 {
		t.Errorf("%v, %d changed", err, len(changed))
	}
	if user := u.Account("w").User(); user.Enabled() || runs(user) != "0" {
		t.Errorf("a line that is not understood gives %v", user)
	}
}
