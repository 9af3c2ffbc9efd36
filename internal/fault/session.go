//go:build fault

package fault

import (
	"bytes"

	"github.com/faisca/fila/resp"
)

// unfencedSession removes the delivery number from the receipts of FILA.ACK, so that an ack ends
// the current lease of its message, whichever it is.
type unfencedSession struct{ resp.Session }

func (u unfencedSession) Handle(cmds []resp.Command) {
	for _, c := range cmds {
		if len(c.Args) < 3 || !bytes.EqualFold(c.Args[0], []byte("FILA.ACK")) {
			continue
		}
		for i := range c.Args[2:] {
			c.Args[2+i], _, _ = bytes.Cut(c.Args[2+i], []byte(":"))
		}
	}
	u.Session.Handle(cmds)
}

// unorderedSession creates queues that are not ordered.
type unorderedSession struct{ resp.Session }

func (u unorderedSession) Handle(cmds []resp.Command) {
	for i := range cmds {
		args := cmds[i].Args
		if len(args) < 3 || !bytes.EqualFold(args[0], []byte("FILA.QUEUE")) {
			continue
		}
		for j := 3; j+1 < len(args); j++ {
			if bytes.EqualFold(args[j], []byte("ORDERED")) {
				args[j+1] = []byte("OFF")
			}
		}
	}
	u.Session.Handle(cmds)
}
