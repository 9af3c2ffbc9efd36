package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

// heldConn counts the writes, each of which waits until the test lets it go.
type heldConn struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
	next   chan error
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes = append(c.writes, bytes.Clone(b))
	c.mu.Unlock()
	err, open := <-c.next
	if !open {
		err = io.ErrClosedPipe
	}
	return len(b), err
}

func (c *heldConn) Close() error { close(c.next); return nil }

func TestWritesInShortSuccessionAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &heldConn{next: make(chan error)}
		c := newGatherConn(held)
		for _, text := range []string{"a", "b", "c"} {
			if n, err := c.Write([]byte(text)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			synctest.Wait()
		}
		held.next <- nil
		synctest.Wait()
		if len(held.writes) != 2 || string(held.writes[0]) != "a" || string(held.writes[1]) != "bc" {
			t.Errorf("written %q", held.writes)
		}
		// Bytes wait up to a bound.
		if _, err := c.Write(make([]byte, gatherMax)); err != nil {
			t.Fatal(err)
		}
		full := make(chan struct{})
		go func() {
			_, _ = c.Write([]byte("x")) // its end is what counts
			close(full)
		}()
		synctest.Wait()
		select {
		case <-full:
			t.Error("more bytes wait than the bound")
		default:
		}
		held.next <- nil
		<-full
		held.next <- errors.New("broken")
		synctest.Wait()
		if _, err := c.Write([]byte("y")); err == nil || err.Error() != "broken" {
			t.Errorf("after an error: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a write under way does not keep Close waiting
		held := &heldConn{next: make(chan error)}
		c := newGatherConn(held)
		_, _ = c.Write([]byte("a")) // taken
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Write([]byte("b")); err == nil {
			t.Error("written after Close")
		}
	})
}
