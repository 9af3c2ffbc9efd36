package resp

import (
	"container/list"
	"sync"
	"time"
)

// unauthenticatedList holds the unauthenticated connections, the longest unauthenticated
// first. Over the cap the first one is evicted, so clients that authenticate promptly are
// not affected.
type unauthenticatedList struct {
	mu   sync.Mutex
	list list.List // of *Conn
}

// add appends a connection. If the list then exceeds most (0: no cap), it removes and
// returns the oldest, to be closed.
func (s *unauthenticatedList) add(c *Conn, most int) (oldest *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.unauthenticated = s.list.PushBack(c)
	if most == 0 || s.list.Len() <= most {
		return nil
	}
	oldest, _ = s.list.Front().Value.(*Conn)
	s.list.Remove(oldest.unauthenticated)
	oldest.unauthenticated = nil
	return oldest
}

func (s *unauthenticatedList) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.unauthenticated != nil {
		s.list.Remove(c.unauthenticated)
		c.unauthenticated = nil
	}
}

// markAuthenticated records whether the client is authenticated. To be called from the
// reader goroutine only.
func (c *Conn) markAuthenticated(known bool) {
	s := c.server
	switch {
	case known && c.unauthenticatedSince.IsZero(), !known && !c.unauthenticatedSince.IsZero():
	case known:
		c.unauthenticatedSince = time.Time{}
		s.unauthenticated.remove(c)
	default:
		c.unauthenticatedSince = time.Now()
		if oldest := s.unauthenticated.add(c, s.cfg.UnauthenticatedMax); oldest != nil {
			s.cfg.Log.Info().Uint64("conn", oldest.id).Str("addr", oldest.RemoteAddr().String()).
				Msg("closing an unauthenticated client: too many connections have not authenticated")
			oldest.Close()
		}
	}
}
