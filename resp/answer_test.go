package resp

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// connected returns a server, its handler, and the two sides of a connection.
func connected(t *testing.T) (*Server, *testHandler, *client, *testSession) {
	t.Helper()
	h := newTestHandler()
	srv, addr := startServer(t, h, nil)
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	return srv, h, c, s
}

// answer makes a reply ready and answers it on this goroutine.
func (s *testSession) answer(r *testReply) {
	r.ready.Store(true)
	s.c.Answer()
}

// awaitSleep waits until a command waits and the writer sleeps.
func (s *testSession) awaitSleep(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "the writer sleeps", func() bool { return s.c.Pending() > 0 && s.c.replies.sleeping.Load() })
}

// waiting sends commands that wait, each with its own text, and returns their replies.
func waiting(t *testing.T, h *testHandler, c *client, name string, texts ...string) (replies []*testReply) {
	t.Helper()
	for _, text := range texts {
		c.send(fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(name), name, len(text), text))
		replies = append(replies, testkit.Receive(t, "the command waits", h.waits))
	}
	return replies
}

// A brief reply is rendered on the goroutine of Answer while the writer sleeps; others are left to it.
func TestAnswerRendersWhatIsBrief(t *testing.T) {
	_, h, c, s := connected(t)
	for n := range 200 {
		name := "WAITBRIEF"
		if n%10 == 9 {
			name = "WAIT"
		}
		r := waiting(t, h, c, name, fmt.Sprint(n))[0]
		s.awaitSleep(t)
		s.answer(r)
		if r.brief && s.c.writer.socket != nil && !r.sent.Load() { // nil in a plain build
			t.Fatalf("reply %d was not rendered", n)
		}
		c.want(fmt.Sprintf("+%d\r\n", n))
	}
}

// Answer keeps the order of the replies.
func TestAnswerWaitsForEarlierReplies(t *testing.T) {
	_, h, c, s := connected(t)
	a := waiting(t, h, c, "WAITBRIEF", "a")[0]
	b := waiting(t, h, c, "WAIT", "b")[0]
	d := waiting(t, h, c, "WAITBRIEF", "d")[0]
	s.answer(d)
	s.answer(a)
	c.want("+a\r\n")
	if d.sent.Load() {
		t.Fatal("a reply was rendered before an earlier one")
	}
	s.answer(b)
	c.want("+b\r\n+d\r\n")
	c.send("PING\r\n")
	c.want("+PONG\r\n")
}

// Answer leaves to the writer what the socket does not take at once: it returns while the client reads
// nothing, and nothing is lost.
func TestAnswerDoesNotWaitForTheClient(t *testing.T) {
	_, h, c, s := connected(t)
	var want strings.Builder
	for n := 0; s.c.Pending() < 200; n++ {
		text := fmt.Sprint(n) + strings.Repeat(" ", 8000)
		s.answer(waiting(t, h, c, "WAITBRIEF", text)[0])
		want.WriteString("+" + text + "\r\n")
	}
	c.want(want.String())
	testkit.Eventually(t, "nothing is pending", func() bool { return s.c.Pending() == 0 })
	r := waiting(t, h, c, "WAITBRIEF", "large")[0]
	r.text = "+" + strings.Repeat("y", 24<<20) + "\r\n" // more than the sockets take
	s.awaitSleep(t)
	s.answer(r)
	c.want(r.text)
}

// A reply that is answered is rendered whole before any of it is written, whatever its size, and all is settled
// afterwards.
func TestAnswerSettlesRepliesOfAnySize(t *testing.T) {
	_, h, c, s := connected(t)
	for range 3 {
		for _, size := range []int{0, briefBytes, directBytes - 10, directBytes, 2 * flushBytes} {
			text := strings.Repeat("x", size)
			r := waiting(t, h, c, "WAITBRIEF", text)[0]
			c.send(fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", size, text))
			testkit.Eventually(t, "both wait", func() bool { return s.c.Pending() == 2 && s.c.replies.sleeping.Load() })
			s.answer(r)
			c.want(fmt.Sprintf("+%s\r\n$%d\r\n%s\r\n", text, size, text))
			c.send("PING\r\n")
			c.want("+PONG\r\n")
			testkit.Eventually(t, "nothing is pending", func() bool { return s.c.Pending() == 0 && s.c.QueuedBytes() == 0 })
		}
	}
}

// Goroutines that wake and answer, and what is sent between replies, leave one stream in order.
func TestAnswersMeetWakeUps(t *testing.T) {
	const rounds, each = 300, 8
	_, h, c, s := connected(t)
	pushed := 0
	for n := range rounds {
		texts := make([]string, each)
		for i := range texts {
			texts[i] = fmt.Sprintf("%d.%d", n, i)
		}
		replies := waiting(t, h, c, [...]string{"WAIT", "WAITBRIEF", "WAITBRIEF"}[n%3], texts...)
		var all sync.WaitGroup
		for _, r := range replies {
			all.Go(func() {
				if rand.IntN(3) == 0 {
					s.release(r)
				} else {
					s.answer(r)
				}
			})
		}
		if n%5 == 0 {
			pushed++
			all.Go(func() { s.c.PushAsync([]byte(">pushed\r\n")) })
		}
		for i := 0; i < each; {
			line, err := c.r.ReadString('\n')
			switch {
			case err != nil:
				t.Fatal(err)
			case line == ">pushed\r\n":
				pushed--
			case line != "+"+texts[i]+"\r\n":
				t.Fatalf("%q instead of %q", line, texts[i])
			default:
				i++
			}
		}
		all.Wait()
	}
	for ; pushed > 0; pushed-- {
		c.want(">pushed\r\n")
	}
	testkit.Eventually(t, "nothing is pending", func() bool { return s.c.Pending() == 0 && s.c.QueuedBytes() == 0 })
}

// A reply that panics ends its connection, not the caller of Answer.
func TestAPanicDoesNotReachTheCallerOfAnswer(t *testing.T) {
	srv, h, c, s := connected(t)
	r := waiting(t, h, c, "WAITBRIEF", "panic")[0]
	s.awaitSleep(t)
	s.answer(r)
	if got, _ := io.ReadAll(c.r); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	testkit.Eventually(t, "no connection is left", func() bool { return srv.Stats().Current == 0 })
}
