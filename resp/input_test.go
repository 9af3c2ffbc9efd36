package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// Clients that each send a long command take no more memory together than there is a
// bound for: the one too many is told so, the others and those with short commands are
// served, and what they held is free again afterwards.
func TestLongCommandsOfAllClientsAreBounded(t *testing.T) {
	const long = 600 << 10
	s, addr := startServer(t, newTestHandler(), func(c *Config) { c.InputBytesMax = 1 << 20 })
	echo := fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n", long)
	first := dial(t, addr)
	first.send(echo + strings.Repeat("a", long-1))
	testkit.Eventually(t, "the long command has arrived except for its end", func() bool { return s.pools.received.Load() >= long-1 })
	second := dial(t, addr)
	second.send(echo + strings.Repeat("b", long-1))
	second.wantEnd("-OOM " + errInputMemory.Error() + "\r\n")
	third := dial(t, addr)
	third.send("PING\r\n")
	third.want("+PONG\r\n")
	first.send("a\r\n")
	first.want(fmt.Sprintf("$%d\r\n%s\r\n", long, strings.Repeat("a", long)))
	testkit.Eventually(t, "the memory of the command is free again", func() bool { return s.pools.received.Load() == 0 })
}
