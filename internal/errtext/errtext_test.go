package errtext

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestErrorsThatDifferInNumbersIdsAndQuotedStringsAreOfOneGroup(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"no such customer":                "no such customer",
		"timeout after 1500 ms":           "timeout after # ms",
		"timeout after 1.5s, attempt 3/5": "timeout after #s, attempt #/#",
		"1,000 of 2,500,000 rows":         "# of # rows",
		"dial tcp 10.0.0.1:5432: connect: connection refused": "dial tcp #:#: connect: connection refused",
		"HTTP 503":                    "HTTP #",
		"v1.2.3-rc4":                  "v#-rc#",
		"worker12 of pool-b7 is gone": "worker# of pool-b# is gone",
		"at 2026-11-22T16:53:57.123Z": "at #-#-#T#:#:#Z",
		"order 018f5e8a-7c00-7abc-8def-0123456789ab is unknown": "order # is unknown",
		"018F5E8A-7C00-7ABC-8DEF-0123456789AB":                  "#",
		"commit 9f8e7d6c5b is missing":                          "commit # is missing",
		"deadbeef is a word, deadbee5 is not":                   "deadbeef is a word, # is not",
		"fault at 0xc000012":                                    "fault at #",
		"cus_9s6XKzkNRiz8i3aa has no card":                      "cus_# has no card",
		"01HF3Z8Q4RTYV6W2X9ABCDEFGH":                            "#",
		"invalid character 'x' looking for value":               "invalid character '' looking for value",
		`open "/tmp/a b.txt": no such file`:                     `open "": no such file`,
		`key "a \"b\" c" is unknown`:                            `key "" is unknown`,
		"unknown column `user_id` in 'where clause'":            "unknown column `` in ''",
		"can't reach it, don't know why":                        "can't reach it, don't know why",
		"KeyError: 'it's'":                                      "KeyError: ''",
		"the users' table of 'a'":                               "the users' table of ''",
		`5" is too long`:                                        `#" is too long`,
		"goroutine 17 [running]: main.f(0x1f)":                  "goroutine # [running]: main.f(#)",
		"größe 12 überschritten":                                "größe # überschritten",
		"\xff\xfe1":                                             "\xff\xfe#",
		"issue #4711":                                           "issue ##",
		"dial tcp db-17.eu.example.com:5432: i/o timeout":       "dial tcp #:#: i/o timeout",
		"dial tcp redis-master:6379: connect: refused":          "dial tcp #:#: connect: refused",
		"lookup api.stripe.com on 10.0.0.2:53: no such host":    "lookup # on #:#: no such host",
		"dial tcp [2001:db8::1]:443: no route":                  "dial tcp [#]:#: no route",
		"dial udp [::1]:53: refused":                            "dial udp [::#]:#: refused",
		"link aa:bb:cc:dd:ee:0f is down":                        "link # is down",
		"mail to jane.doe+x@example.org bounced":                "mail to # bounced",
		"open /var/lib/tenant-a/f.json: no such file":           "open #: no such file",
		"/app/main.go:17:2: undefined: x":                       "#: undefined: x",
		`cannot read C:\data\a.txt`:                             "cannot read #",
		"GET https://api.example.com/v1/a?b=c: 503":             "GET https:#: #",
		"pod web-7f9c4d5b6-x2k9z was evicted":                   "pod web-#-# was evicted",
		"commit 9f8e7d6c5b-later is no pod":                     "commit #-later is no pod",
		"java.lang.NullPointerException at Foo.java:17":         "java.lang.NullPointerException at Foo.java:#",
		"java.io.IOException: broken pipe":                      "java.io.IOException: broken pipe",
		"std::vector of dead::beef, context.deadline":           "std::vector of dead::beef, context.deadline",
		"and/or 3/5, 12:30:05 http status:503":                  "and/or #/#, #:#:# http status:#",
		"net/http: request canceled":                            "net/http: request canceled",
		"node orders.default.svc is gone.":                      "node # is gone.",
		"visit example.com.":                                    "visit #.",
	} {
		if got := Group(text); got != want {
			t.Errorf("Group(%q) = %q, want %q", text, got, want)
		}
	}
}

// A text of quotes and backslashes takes no more time for each byte than any other: a
// million bytes would take minutes if each quote looked for its end anew.
func TestAGroupTakesTimeInProportionToItsText(t *testing.T) {
	for _, part := range []string{"'a", `"\`, "` '", `\"`, "1a", "1.", "0x", "a'b'", "a@", " /", "a.", "::", "1:", "to a:1 ", "a.com.", "-._+", `a:\`} {
		text := strings.Repeat(part, 1<<20)
		if got := Group(text); len(got) > len(text) {
			t.Errorf("%q: %d bytes of %d", part, len(got), len(text))
		}
	}
}

func FuzzGroup(f *testing.F) {
	for _, text := range []string{
		"dial tcp db-1.example.com:5432", "to a1:2 [fe80::1%eth0] a@b1.de /x/y.go:1:2", `C:\\a\\b1 x.com-#.-com.1 1::'b' #.com`, "web-7f9c4d5b6-x2k9z",
		"timeout after 1500 ms", `open "a\"b": 'c' d'e`, "x1abcdefab-abcd-abcd-abcd-abcdefabcdef", "'tis don't", "5'abc'", "``''\"\"#'x'", "1.5abcdef12",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		group := Group(text)
		if len(group) > len(text) {
			t.Errorf("%q: the group is longer: %q", text, group)
		}
		if strings.ContainsAny(group, "0123456789") {
			t.Errorf("%q: the group has a number: %q", text, group)
		}
		if again := Group(group); again != group {
			t.Errorf("%q is of the group %q, and that of %q", text, group, again)
		}
		if strings.ContainsAny(text, "xX") {
			return // another digit than 0 before it makes no hexadecimal number
		}
		if other := Group(nextDigits(text)); other != group {
			t.Errorf("%q: with other digits the group is %q, not %q", text, other, group)
		}
	})
}

// nextDigits replaces each digit by another one.
func nextDigits(text string) string {
	b := []byte(text)
	for i := range b {
		if isDigit(b[i]) {
			b[i] = '0' + (b[i]-'0'+1)%10
		}
	}
	return string(b)
}

func TestThreeCausesOfThirtyHostsAreThreeGroups(t *testing.T) {
	groups := map[string]bool{}
	for i := range 30 {
		name := []string{"alpha", "beta", "gamma", "delta", "zeta"}[i%5] + string(rune('a'+i/5))
		groups[Group("dial tcp "+name+".payments.internal:5432: connect: connection refused")] = true
		groups[Group("tls: certificate of https://"+name+".example.com/v1/"+name+" has expired")] = true
		groups[Group("write /mnt/"+name+"/spool: no space left on device")] = true
	}
	if len(groups) != 3 {
		t.Errorf("%d groups: %v", len(groups), groups)
	}
}

// The same as the fuzz test, of texts made of what the rules are about.
func TestTheGroupOfAGroupIsThatGroup(t *testing.T) {
	parts := []string{
		"a", "b1", "1", "12", "deadbee5", "x2k9z", "com", "local", ".", "-", "_", "+", "@", ":", "::", "/", `\`, "'", `"`, "`", " ", " to ", "tcp ", "#", "é", "%", "(", "[", "]",
		"7f9c4d5b6", "fe80", "C:\\", "https://", "018f5e8a-7c00-7abc-8def-0123456789ab", "?", "=", ",",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		text := ""
		for range 1 + rng.IntN(9) {
			text += parts[rng.IntN(len(parts))]
		}
		group := Group(text)
		if again := Group(group); again != group || len(group) > len(text) {
			t.Fatalf("%q is of the group %q, and that of %q", text, group, again)
		}
		if other := Group(nextDigits(text)); !strings.Contains(text, "x") && other != group {
			t.Fatalf("%q: with other digits the group is %q, not %q", text, other, group)
		}
	}
}
