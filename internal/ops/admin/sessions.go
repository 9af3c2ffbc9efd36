package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	sessionsMax = 256 // beyond it the one that was not used for longest ends
	sessionIdle = 30 * time.Minute
	sessionLife = 12 * time.Hour
	tokenBytes  = 32
)

// session is a user that has logged in. It lasts until the first of: logout, sessionIdle
// without a request or an open stream, sessionLife, the end of its connection.
type session struct {
	user string
	over <-chan struct{} // its connection has ended
	done chan struct{}   // closed at its end

	key   [sha256.Size]byte
	conn  interface{ Close() error }
	began time.Time
	used  time.Time // guarded by the lock of sessions
	ended bool      // likewise
}

// sessions are in memory only, by the digest of their token: neither a look-up nor what is
// in memory tells the token.
type sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]*session
}

// begin makes a session of a connection that has authenticated as user, and returns its
// token. The connection belongs to the session.
func (t *sessions) begin(user string, conn interface{ Close() error }, over <-chan struct{}) (token string) {
	random := make([]byte, tokenBytes)
	rand.Read(random)
	token = base64.RawURLEncoding.EncodeToString(random)
	now := time.Now()
	s := &session{user: user, over: over, done: make(chan struct{}), key: sha256.Sum256([]byte(token)), conn: conn, began: now, used: now}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= sessionsMax {
		t.drop(t.oldest())
	}
	if t.all == nil {
		t.all = map[[sha256.Size]byte]*session{}
	}
	t.all[s.key] = s
	go t.watch(s)
	return token
}

// find returns the session of a token and counts as its use; nil if there is none any more.
func (t *sessions) find(token string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[sha256.Sum256([]byte(token))]
	if s == nil {
		return nil
	}
	now := time.Now()
	select {
	case <-s.over:
		return nil
	default:
	}
	if s.left(now) <= 0 {
		return nil
	}
	s.used = now
	return s
}

// use counts as a use of the session.
func (t *sessions) use(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used = time.Now()
}

// left returns how long the session lasts without a further use.
func (s *session) left(now time.Time) time.Duration {
	return min(s.used.Add(sessionIdle).Sub(now), s.began.Add(sessionLife).Sub(now))
}

// watch ends the session when its time or its connection has come to an end.
func (t *sessions) watch(s *session) {
	for {
		t.mu.Lock()
		left := s.left(time.Now())
		t.mu.Unlock()
		if left <= 0 {
			break
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
			continue
		case <-s.over:
		case <-s.done:
		}
		timer.Stop()
		break
	}
	t.end(s)
}

// end ends a session and its streams.
func (t *sessions) end(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s)
}

// drop is end for a caller that holds the lock.
func (t *sessions) drop(s *session) {
	if s.ended {
		return
	}
	s.ended = true
	delete(t.all, s.key)
	close(s.done)
	_ = s.conn.Close() // it may have ended before
}

// oldest returns the session that was not used for longest. The caller holds the lock, and
// there is one.
func (t *sessions) oldest() (oldest *session) {
	for _, s := range t.all {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	return oldest
}

// close ends all sessions.
func (t *sessions) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		t.drop(s)
	}
}
