package signals

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/decay"
)

func pointsOf(t *testing.T) (*Table, checkpoints) {
	t.Helper()
	windows, err := decay.NewWindows([]time.Duration{time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	pairs := NewTable(windows, 100)
	return pairs, newCheckpoints(pairs, 10)
}

// write writes what a checkpoint has to write, at most so many pairs, and returns how many it was.
func write(pairs *Table, c *checkpoints, now int64, most int) (n int) {
	for c.Begin(now); c.Writing() && n < most; {
		p, _ := c.Take()
		if p == nil {
			break
		}
		pairs.Record(p)
		n++
	}
	c.Arm(now)
	return n
}

func TestACheckpointWritesWhatHadChangedWhenItBegan(t *testing.T) {
	pairs, c := pointsOf(t)
	add := func(name string, now int64) {
		pairs.Add("s", name, now, 1)
		c.Arm(now)
	}
	if c.Next(1) != Never || c.Forgotten() != 0 {
		t.Error("a checkpoint is due without additions")
	}
	for i := range 5 {
		add(fmt.Sprint("n", i), int64(100+i))
	}
	if at := c.Next(104); at != 110 {
		t.Errorf("the checkpoint is at %d", at)
	}
	if n := write(pairs, &c, 109, 9); n != 0 {
		t.Errorf("%d are written early", n)
	}
	if n := write(pairs, &c, 110, 3); n != 3 || c.Next(111) != 111 {
		t.Errorf("%d are written, the rest at %d", n, c.Next(111))
	}
	add("n0", 111)
	if n := write(pairs, &c, 112, 9); n != 2 || c.Next(112) != 122 || c.Forgotten() != 0 {
		t.Errorf("%d are written, the addition at %d", n, c.Next(112))
	}
	c.Drain(113)
	if !c.Draining() || c.Next(113) != 113 || write(pairs, &c, 113, 9) != 1 || c.Draining() {
		t.Error("a stop does not write all at once")
	}
	if add("late", 114); c.Next(114) != 114 {
		t.Error("an addition during a stop waits")
	}
}

func TestACheckpointOverlooksPairsThatAreGone(t *testing.T) {
	pairs, c := pointsOf(t)
	p := pairs.Add("s", "n", 1, 1)
	c.Arm(1)
	c.Begin(11)
	pairs.Remove(p)
	if gone, last := c.Take(); gone != nil || last || c.Writing() {
		t.Error("a pair that is gone is written")
	}
	if pairs.Add("s", "m", 12, 1); c.Forgotten() != 1 {
		t.Error("an addition after which nothing is armed is not noticed")
	}
}

func TestNamesOfSignalsAreChecked(t *testing.T) {
	for _, test := range []struct {
		subject, name, want string
	}{
		{"s", "a-z_0.9", ""}, {"", "a", "subject"}, {"12345678901", "a", "has 11"}, {"s", "", "has 0"}, {"s", "A", `"A"`},
		{"s", strings.Repeat("a", NameMax), ""}, {"s", strings.Repeat("a", NameMax+1), "has 65"},
	} {
		if err := CheckName(test.subject, test.name, 10); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q %q: %v", test.subject, test.name, err)
		}
	}
}
