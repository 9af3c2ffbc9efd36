package admin

import (
	"net/http/httptest"
	"testing"

	"github.com/faisca/fila/internal/client"
)

// What a request costs beside HTTP: a connection of its own and one command, and the same
// command on a connection that is open.
func BenchmarkConnection(b *testing.B) {
	s, err := New(Config{Broker: newBroker(b)})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	b.Run("of its own", func(b *testing.B) {
		for b.Loop() {
			c, err := s.open(r)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Do(b.Context(), "PING"); err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
	b.Run("open", func(b *testing.B) {
		c, err := s.dial(r, "", defaultUser, client.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		for b.Loop() {
			if _, err := c.Do(b.Context(), "PING"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
