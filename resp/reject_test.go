package resp

import (
	"net"
	"testing"
	"testing/synctest"
)

// handed is a listener that accepts what it is handed.
type handed chan net.Conn

func (h handed) Accept() (net.Conn, error) {
	c, open := <-h
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (h handed) Close() error   { return nil }
func (h handed) Addr() net.Addr { return &net.TCPAddr{} }

// lingering is a connection whose end takes until it is let go.
type lingering struct {
	net.Conn
	gate chan struct{}
}

func (c lingering) Close() error {
	<-c.gate
	return c.Conn.Close()
}

// A connection that is refused has a descriptor until it is closed. The next one is
// accepted only then, so that they cannot pile up.
func TestAConnectionIsRefusedBeforeTheNextIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, newTestHandler(), func(c *Config) { c.MaxClients = 1 })
		l, ended := make(handed), make(chan error, 1)
		go func() { ended <- s.accept(t.Context(), listener{l, Listener{TLS: false}}) }()
		admitted, client := net.Pipe()
		l <- admitted
		gate := make(chan struct{})
		for range 3 {
			refused, other := net.Pipe()
			l <- lingering{refused, gate}
			go func() {
				answer := make([]byte, len(tooManyClients))
				if _, err := other.Read(answer); err != nil || string(answer) != tooManyClients {
					t.Errorf("reads %q, %v", answer, err)
				}
			}()
			synctest.Wait()
			select {
			case l <- nil:
				t.Fatal("another was accepted while one that is refused was open")
			default:
			}
			gate <- struct{}{}
			synctest.Wait()
		}
		if st := s.Stats(); st.Rejected != 3 || st.Current != 1 {
			t.Errorf("%+v", st)
		}
		_ = client.Close()
		close(l)
		if err := <-ended; err == nil {
			t.Error("it accepts without a listener")
		}
		synctest.Wait()
	})
}
