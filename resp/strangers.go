package resp

import (
	"container/list"
	"sync"
	"time"
)

// strangers are the connections whose client nobody knows yet, the one that has
// been so for longest first. Who comes to be known within moments is safe from
// those who never will be: it is the oldest that has to make room.
type strangers struct {
	mu   sync.Mutex
	list list.List // of *Conn
}

// add notes a stranger. If there are then more than most, the oldest one is no
// stranger any more but returned, to be closed. No bound: 0.
func (s *strangers) add(c *Conn, most int) (oldest *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.stranger = s.list.PushBack(c)
	if most == 0 || s.list.Len() <= most {
		return nil
	}
	oldest, _ = s.list.Front().Value.(*Conn)
	s.list.Remove(oldest.stranger)
	oldest.stranger = nil
	return oldest
}

func (s *strangers) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.stranger != nil {
		s.list.Remove(c.stranger)
		c.stranger = nil
	}
}

// meet notes whether the client is known. Only from the goroutine that reads the
// connection.
func (c *Conn) meet(known bool) {
	s := c.server
	switch {
	case known && c.estranged.IsZero(), !known && !c.estranged.IsZero():
	case known:
		c.estranged = time.Time{}
		s.strangers.remove(c)
	default:
		c.estranged = time.Now()
		if oldest := s.strangers.add(c, s.cfg.StrangersMax); oldest != nil {
			s.cfg.Log.Info().Uint64("conn", oldest.id).Str("addr", oldest.RemoteAddr().String()).
				Msg("closing a client that has not authenticated: too many of them")
			oldest.Close()
		}
	}
}
