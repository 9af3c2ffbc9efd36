package commands

import (
	"strconv"
	"strings"
	"testing"
)

func TestTheMemoryOfAQueueGrowsWithWhatItHolds(t *testing.T) {
	c := newServer(t, nil).connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	usage := func(args ...string) int {
		n, err := strconv.Atoi(strings.Trim(c.do(append([]string{"MEMORY", "USAGE", "orders"}, args...)...), ":\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	empty := usage()
	const payload, keys, each = 10_000, 20, 5
	for i := range keys * each {
		c.do("FILA.ENQUEUE", "orders", strings.Repeat("x", payload), "KEY", strconv.Itoa(i%keys))
	}
	full := usage("SAMPLES", "0")
	if held := full - empty; held < payload*keys*each || held > 2*payload*keys*each {
		t.Errorf("%d messages of %d bytes are said to take %d", keys*each, payload, held)
	}
	if sampled := usage(); sampled != full { // all keys are alike
		t.Errorf("by sample %d, of all %d", sampled, full)
	}
}
