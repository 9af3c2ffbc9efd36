package acl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prefix is a matcher that is enough here: a literal, or a star behind one.
func prefix(pattern, s string) bool {
	if p, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, p)
	}
	return pattern == s
}

func testCatalog() *Catalog {
	return NewCatalog([]Command{
		{Name: "auth", Categories: []string{"connection"}, Always: true},
		{Name: "get", Categories: []string{"read"}},
		{Name: "put", Categories: []string{"write"}},
		{Name: "box"},
		{Name: "box|open", Categories: []string{"read"}},
		{Name: "box|shut", Categories: []string{"write"}},
	}, []string{"connection", "read", "write"}, prefix)
}

func make1(t *testing.T, cfg Config) *Users {
	t.Helper()
	u, err := New(testCatalog(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// runs lists the commands that the user may run, by their numbers.
func runs(u *User) string {
	var s strings.Builder
	for i := range u.catalog.size {
		if u.MayRun(i) {
			fmt.Fprint(&s, i)
		}
	}
	return s.String()
}

func TestRulesOfCommands(t *testing.T) {
	for _, x := range []struct{ rules, runs, shown string }{
		{"", "0", "-@all"},
		{"+get", "01", "-@all +get"},
		{"+@all", "012345", "+@all"},
		{"allcommands -put", "01345", "+@all -put"},
		{"+@read", "014", "-@all +@read"},
		{"+box", "0345", "-@all +box"},
		{"+box|open", "04", "-@all +box|open"},
		{"+box -box|open", "035", "-@all +box -box|open"},
		{"+box|open +box|shut -box", "0", "-@all"},
		{"+@all +get +box|open", "012345", "+@all"},
		{"+@all -box +box|open -box|shut", "0124", "+@all -box +box|open"},
		{"+box +box|open -box|open +box|shut", "035", "-@all +box -box|open"},
		{"+@read +get -box", "01", "-@all +@read +get -box"},
		{"+get -get +get", "01", "-@all +get"},
		{"+@all -@write +put", "01234", "+@all -@write +put"},
		{"+@write -@all +GET", "01", "-@all +get"},
		{"+@all nocommands", "0", "-@all"},
	} {
		u, err := newUser("x", testCatalog()).with(strings.Fields(x.rules))
		if err != nil {
			t.Fatal(err)
		}
		if runs(u) != x.runs || u.Commands() != x.shown {
			t.Errorf("%q: runs %s, shown as %q; want %s, %q", x.rules, runs(u), u.Commands(), x.runs, x.shown)
		}
	}
}

func TestProduceAndConsumeAreApart(t *testing.T) {
	all := map[Need]string{Consume: "consume", Produce: "produce", Manage: "manage", Look: "look"}
	for _, x := range []struct {
		rules, queue string
		may          []Need
	}{
		{"", "a", nil},
		{"~a*", "ab", []Need{Consume, Produce, Manage, Look}},
		{"~a*", "b", nil},
		{"%R~a", "a", []Need{Consume, Look}},
		{"%W~a", "a", []Need{Produce, Look}},
		{"%R~a %W~a", "a", []Need{Consume, Produce, Manage, Look}},
		{"%R~a* %W~ab", "ab", []Need{Consume, Produce, Manage, Look}},
		{"%R~a* %W~ab", "ac", []Need{Consume, Look}},
		{"%RW~a", "a", []Need{Consume, Produce, Manage, Look}},
		{"~a resetkeys", "a", nil},
		{"allkeys", "anything", []Need{Consume, Produce, Manage, Look}},
		{"~a ~*", "anything", []Need{Consume, Produce, Manage, Look}},
		{"%R~*", "anything", []Need{Consume, Look}},
	} {
		u, err := newUser("x", testCatalog()).with(strings.Fields(x.rules))
		if err != nil {
			t.Fatal(err)
		}
		for need, name := range all {
			want := false
			for _, n := range x.may {
				want = want || n == need
			}
			if got := u.May(need, x.queue); got != want {
				t.Errorf("%q: %s on %s: %v", x.rules, name, x.queue, got)
			}
		}
	}
}

func TestChannels(t *testing.T) {
	u, err := newUser("x", testCatalog()).with([]string{"&news.*", "&one"})
	if err != nil {
		t.Fatal(err)
	}
	for channel, may := range map[string]bool{"news.a": true, "one": true, "two": false} {
		if u.MayListen(channel, false) != may {
			t.Errorf("channel %s", channel)
		}
	}
	for pattern, may := range map[string]bool{"news.*": true, "one": true, "*": false, "news.a*": false} {
		if u.MayListen(pattern, true) != may {
			t.Errorf("pattern %s", pattern)
		}
	}
}

func TestAnUnrestrictedUserIsOneWithoutAnyLimit(t *testing.T) {
	for rules, want := range map[string]bool{
		"allkeys allcommands": true, "allkeys": false, "allcommands": false, "allkeys allcommands -get": false, "allkeys allcommands -get +get": true,
		"%R~* allcommands": false,
	} {
		u, err := newUser("x", testCatalog()).with(strings.Fields(rules))
		if err != nil || u.Unrestricted() != want {
			t.Errorf("%q: %v, %v", rules, !want, err)
		}
	}
}

func TestAuthentication(t *testing.T) {
	u := make1(t, Config{Password: "root", Lines: []string{
		"user on1 on >one >two", "user off1 off >one", "user free on nopass", "user none on", "# a comment", "",
	}})
	for _, x := range []struct {
		user, password string
		ok             bool
	}{
		{"default", "root", true}, {"default", "", false}, {"default", "one", false},
		{"on1", "one", true}, {"on1", "two", true}, {"on1", "three", false}, {"on1", "", false}, {"on1", "one\x00", false},
		{"off1", "one", false}, {"free", "anything", true}, {"none", "", false}, {"nobody", "one", false}, {"", "", false},
	} {
		if got := u.Authenticate(x.user, []byte(x.password)) != nil; got != x.ok {
			t.Errorf("%s with %q: %v", x.user, x.password, got)
		}
	}
	if u.Account("default").User().Open() {
		t.Error("a password is set, and anybody may come in")
	}
	if !make1(t, Config{}).Account("default").User().Open() {
		t.Error("without a password anybody may come in")
	}
}

func TestALineOfTheDefaultUserIsOverThePassword(t *testing.T) {
	u := make1(t, Config{Password: "root", Lines: []string{"user default off"}})
	if u.Authenticate("default", []byte("root")) != nil {
		t.Error("it is off")
	}
}

func TestLinesThatCannotBe(t *testing.T) {
	for line, want := range map[string]string{
		"worker on":                          "must begin with 'user'",
		"user":                               "must begin with 'user'",
		"user a +nosuch":                     "user a: rule '+nosuch': Unknown command",
		"user a <s3cret":                     "user a: rule '<...': The password",
		"user a #s3cret":                     "user a: rule '#...': The password hash",
		"user a (~x +get)":                   "Selectors are not supported",
		"user a on\nuser a off":              "duplicate user a",
		"user a #" + strings.Repeat("Z", 64): "must be exactly 64 characters",
		"user a #" + strings.Repeat("A", 64): "must be exactly 64 characters",
	} {
		_, err := New(testCatalog(), Config{Lines: append([]string{"user fine on"}, strings.Split(line, "\n")...)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "auth.users, line ") {
			t.Errorf("%q: %v", line, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the password is told: %v", err)
		}
	}
}

func TestAChangeIsWholeOrNotAtAll(t *testing.T) {
	u := make1(t, Config{})
	if _, err := u.Set("x", []string{"on", "~a", "+get", ">pw"}); err != nil {
		t.Fatal(err)
	}
	before := u.Account("x").User()
	_, err := u.Set("x", []string{"off", "resetkeys", "nonsense"})
	if r, ok := errors.AsType[*RuleError](err); !ok || r.Rule != "nonsense" {
		t.Errorf("got %v", err)
	}
	if u.Account("x").User() != before {
		t.Error("half of it has happened")
	}
	if _, err := u.Set("x", []string{"-get", "%R~b"}); err != nil {
		t.Fatal(err)
	}
	if !before.MayRun(1) || before.May(Consume, "b") {
		t.Error("a user is changed in place")
	}
	if _, err := u.Set("y", []string{"nonsense"}); err == nil || u.Account("y") != nil {
		t.Errorf("a user was made by rules that cannot be: %v", err)
	}
}

func TestADeletedUserStaysDeletedForWhoHoldsIt(t *testing.T) {
	u := make1(t, Config{})
	a, err := u.Set("x", []string{"on", "nopass"})
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := u.Delete([]string{"nobody", "x"}); err != nil || len(gone) != 1 || gone[0] != a {
		t.Fatal(gone, err)
	}
	b, err := u.Set("x", []string{"on", "nopass"})
	if err != nil || a == b || a.User() != nil || b.User() == nil {
		t.Error("the deleted user is back")
	}
	if _, err := u.Delete([]string{"x", "default"}); !errors.Is(err, ErrRemoveDefault) || u.Account("x") == nil {
		t.Errorf("got %v; all are removed or none", err)
	}
}

func TestFileIsWhatWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.acl")
	if _, err := New(testCatalog(), Config{File: path}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Fatalf("a file that is not there: %v", err)
	}
	write(t, path, "\ufeff# users\n\nuser worker on >pw %R~jobs* &ev* +@read -box|open\n")
	u := make1(t, Config{File: path})
	if u.Authenticate("worker", []byte("pw")) == nil || !u.Account("default").User().Open() {
		t.Error("the users of the file are not there")
	}
	if _, err := u.Set("late", []string{"on", "nopass", "allkeys", "+@all", "-put"}); err != nil {
		t.Fatal(err)
	}
	if err := u.Save(); err != nil {
		t.Fatal(err)
	}
	again := make1(t, Config{File: path})
	if was, is := fmt.Sprint(u.List()), fmt.Sprint(again.List()); was != is {
		t.Errorf("saved   %s\nloaded %s", was, is)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLoadTellsWhoIsAffected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.acl")
	write(t, path, "user same on +get\nuser other on +get\nuser gone on +get\n")
	u := make1(t, Config{File: path})
	same, other, gone := u.Account("same"), u.Account("other"), u.Account("gone")
	write(t, path, "user same on +get\nuser other on +put\nuser new on\n")
	changed, err := u.Load()
	if err != nil || len(changed) != 2 {
		t.Fatal(len(changed), err)
	}
	if same.User() == nil || other.User().MayRun(1) || gone.User() != nil || u.Account("new") == nil {
		t.Error("the file is not what counts")
	}
	write(t, path, "user same off\nuser broken nonsense\n")
	if _, err := u.Load(); err == nil || !strings.Contains(err.Error(), path+", line 2") || !same.User().Enabled() {
		t.Errorf("got %v; nothing may have changed", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLogIsBounded(t *testing.T) {
	var l Log
	at := time.Unix(1000, 0)
	for i := range 2 * logMax {
		l.Add(Entry{Reason: DeniedQueue, Object: fmt.Sprint(i), User: "x", At: at})
	}
	if n := len(l.Newest(1000)); n != logMax {
		t.Errorf("%d entries", n)
	}
	l.Add(Entry{Reason: DeniedQueue, Object: "200", User: "x", At: at.Add(logSame)})
	if e := l.Newest(1)[0]; e.Count != 2 || e.Object != "200" || len(l.Newest(1000)) != logMax {
		t.Errorf("got %+v", e)
	}
	l.Add(Entry{Reason: DeniedQueue, Object: "200", User: "x", At: at.Add(2*logSame + 1)})
	if e := l.Newest(1)[0]; e.Count != 1 {
		t.Errorf("long after it is another one, got %+v", e)
	}
	l.Reset()
	if len(l.Newest(5)) != 0 {
		t.Error("not forgotten")
	}
}

// FuzzLines: what can be read can be written, and reads the same.
func FuzzLines(f *testing.F) {
	f.Add("on >pw ~a* %R~b &c +@read -get +box|open")
	f.Add("reset on nopass allkeys %W~x !00 clearselectors")
	f.Fuzz(func(t *testing.T, rules string) {
		u, err := newUser("x", testCatalog()).with(strings.Fields(rules))
		if err != nil {
			return
		}
		again, err := newUser("x", testCatalog()).with(strings.Fields(u.String())[2:])
		if err != nil {
			t.Fatalf("%q: %v", u, err)
		}
		if u.String() != again.String() || !u.commands.equal(again.commands) || u.unrestricted != again.unrestricted {
			t.Errorf("%q is read as %q", u, again)
		}
	})
}
