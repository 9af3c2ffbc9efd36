package texts

import (
	"strings"
	"testing"
)

func TestTheOldestTextIsDroppedForANewOne(t *testing.T) {
	tab := Table{Max: 3 * (overhead + 10)}
	var a, b, c, d Text
	ten := strings.Repeat("x", 10)
	for _, x := range []*Text{&a, &b, &c} {
		tab.Set(x, ten)
	}
	tab.Set(&a, "again") // is the newest now
	tab.Set(&d, ten)
	if a.String() != "again" || b.String() != "" || c.String() != ten || d.String() != ten || tab.Len() != 3 {
		t.Errorf("left are %q, %q, %q, %q", a.String(), b.String(), c.String(), d.String())
	}
	tab.Set(&c, strings.Repeat("x", 1000))
	if tab.Len() != 0 || tab.Bytes() != 0 {
		t.Errorf("after a text that is too long there are %d of %d bytes", tab.Len(), tab.Bytes())
	}
}

func TestAnEmptyTextTakesNothing(t *testing.T) {
	tab := Table{Max: 1000}
	var a, b Text
	tab.Set(&a, "half")
	tab.Set(&b, "")
	tab.Set(&a, "")
	tab.Set(&a, "")
	if tab.Len() != 0 || tab.Bytes() != 0 || a.String() != "" {
		t.Errorf("%d texts of %d bytes", tab.Len(), tab.Bytes())
	}
}
