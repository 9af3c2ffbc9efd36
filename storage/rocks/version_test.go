//go:build cgo

package rocks

import (
	"regexp"
	"strings"
	"testing"
)

func TestVersionsAreThoseOfALibrary(t *testing.T) {
	for _, v := range []string{Version(), headersVersion()} {
		if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
			t.Errorf("RocksDB says it is %q", v)
		}
	}
}

func TestAnotherMinorVersionThanThatOfTheHeadersIsRefused(t *testing.T) {
	for _, c := range []struct {
		linked, headers string
		refused         bool
	}{
		{"7.8.3", "7.8.3", false},
		{"7.8.10", "7.8.3", false},
		{"7.9.3", "7.8.3", true},
		{"7.80.3", "7.8.3", true},
		{"8.8.3", "7.8.3", true},
		{"6.11.4", "6.11.4", false},
	} {
		err := checkVersion(c.linked, c.headers)
		if (err != nil) != c.refused {
			t.Errorf("%s with the headers of %s: %v", c.linked, c.headers, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.linked) || !strings.Contains(err.Error(), c.headers)) {
			t.Errorf("%q does not name both versions", err)
		}
	}
}
