package rocks

import (
	"regexp"
	"testing"
)

func TestVersionIsThatOfALibrary(t *testing.T) {
	if v := Version(); !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("RocksDB says it is %q", v)
	}
}
