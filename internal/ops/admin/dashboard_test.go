package admin

import (
	"regexp"
	"strings"
	"testing"
)

// The page needs no user, as the login is on it; it holds nothing of the broker.
func TestTheDashboardNeedsNoUser(t *testing.T) {
	for _, prefix := range []string{"/", "/fila/"} {
		s := serve(t, newBroker(t, users()...), func(c *Config) { c.Prefix = prefix })
		page := s.do("GET", prefix, "")
		if page.status != 200 || !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
			t.Fatalf("%s: %d %s", prefix, page.status, page.body)
		}
		if got := page.header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("the page may be kept: %q", got)
		}
		if policy := page.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "require-trusted-types-for 'script'") {
			t.Errorf("the policy is %q", policy)
		}
		named := regexp.MustCompile(`"(assets/[^"]+)"`).FindAllStringSubmatch(page.body, -1)
		if len(named) != 3 {
			t.Fatalf("the page names %q, want an icon, a style sheet and a script", named)
		}
		for _, m := range named {
			asset := s.do("GET", prefix+m[1], "", with("Accept-Encoding", "gzip"))
			if asset.status != 200 || asset.header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(asset.body, "\x1f\x8b") {
				t.Errorf("%s: %d, not compressed", m[1], asset.status)
			}
			if got := asset.header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
				t.Errorf("%s: its name changes with its text, and it is %q", m[1], got)
			}
			if got := asset.header.Get("Content-Security-Policy"); got == "" {
				t.Errorf("%s: there is no policy", m[1])
			}
			plain := s.do("GET", prefix+m[1], "", with("Accept-Encoding", "identity"))
			if plain.status != 200 || plain.header.Get("Content-Encoding") != "" || strings.HasPrefix(plain.body, "\x1f\x8b") {
				t.Errorf("%s: %d, compressed though it was not asked for", m[1], plain.status)
			}
		}
		for _, path := range []string{"assets/", "assets/none.js", "assets/..%2findex.html", "assets/" + strings.TrimPrefix(named[0][1], "assets/") + ".gz", "index.html", "dist/"} {
			if got := s.do("GET", prefix+path, ""); got.status != 404 {
				t.Errorf("%s: %d, want 404", path, got.status)
			}
		}
		if got := s.do("GET", prefix, "", to("fila.attacker.example")); got.status != 403 {
			t.Errorf("for another host: %d, want 403", got.status)
		}
	}
}
