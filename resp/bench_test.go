package resp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/tidwall/redcon"
)

// enqueues is a pipeline of n commands with payloads of the given size.
func enqueues(n, payload int) []byte {
	var b []byte
	for range n {
		b = redcon.AppendArray(b, 4)
		for _, s := range []string{"FILA.ENQUEUE", "orders", "tenant-1"} {
			b = redcon.AppendBulkString(b, s)
		}
		b = redcon.AppendBulk(b, make([]byte, payload))
	}
	return b
}

// BenchmarkReader compares with redcon's reader. One operation is 256 commands.
func BenchmarkReader(b *testing.B) {
	const n = 256
	for _, payload := range []int{16, 256, 4 << 10, 64 << 10} {
		in := enqueues(n, payload)
		b.Run(fmt.Sprintf("fila/%d", payload), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			p := &pools{}
			for b.Loop() {
				r := newReader(newStreamSource(bytes.NewReader(in)), p, DefaultLimits())
				r.authenticated = true
				for left := n; left > 0; {
					cmds, err := r.next(handleMax)
					if err != nil {
						b.Fatal(err)
					}
					left -= len(cmds)
				}
				r.release()
			}
		})
		b.Run(fmt.Sprintf("redcon/%d", payload), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				r := redcon.NewReader(bytes.NewReader(in))
				for range n {
					if _, err := r.ReadCommand(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// echoSession answers every command with its last argument, all commands of a
// read with one slice of replies.
type echoSession struct {
	c       *Conn
	echoes  []echoReply
	replies []Reply
}

type echoReply struct{ b []byte }

func (*echoReply) Ready() bool        { return true }
func (r *echoReply) Append(w *Writer) { w.Bulk(r.b) }
func (*echoReply) Drop()              {}

func (s *echoSession) Handle(cmds []Command) {
	s.echoes = make([]echoReply, len(cmds)) // owned by the window
	s.replies = s.replies[:0]
	for i, cmd := range cmds {
		s.echoes[i].b = cmd.Args[len(cmd.Args)-1]
		s.replies = append(s.replies, &s.echoes[i])
	}
	s.c.Push(s.replies...)
}

func (*echoSession) Gone() {}

type echoHandler struct{}

func (echoHandler) Open(c *Conn) Session {
	c.SetAuthenticated(true)
	return &echoSession{c: c}
}

// BenchmarkServer echoes over TCP, clients in the same process. One operation is
// one command.
func BenchmarkServer(b *testing.B) {
	for _, c := range []struct{ conns, pipeline int }{{1, 1}, {64, 1}, {64, 16}, {8, 256}} {
		b.Run(fmt.Sprintf("conns=%d/pipeline=%d", c.conns, c.pipeline), func(b *testing.B) {
			s := newTestServer(b, echoHandler{}, nil)
			addr, _, err := s.Listen(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(b.Context()) }()
			in := enqueues(c.pipeline, 256)
			answer := c.pipeline*len("$256\r\n\r\n") + c.pipeline*256
			clients := make([]net.Conn, c.conns)
			for i := range clients {
				clients[i] = dial(b, addr.String()).Conn
			}
			rounds := max(1, b.N/(c.conns*c.pipeline))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, nc := range clients {
				wg.Go(func() {
					r := bufio.NewReaderSize(nc, 64<<10)
					for range rounds {
						if _, err := nc.Write(in); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.CopyN(io.Discard, r, int64(answer)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			s.closeAll()
			if err := <-served; err != nil {
				b.Error(err)
			}
		})
	}
}
