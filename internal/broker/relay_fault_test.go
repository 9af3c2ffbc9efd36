package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
)

// handOver makes the other node the leader in order.
func (p *relayPair) handOver(from, to string) {
	p.t.Helper()
	p.nodes[from].Hold()
	p.stop(from)
	p.lead(to)
}

// crash breaks all links of the leader, as if its process had ended, and ends its engine.
func (p *relayPair) crash(name string) {
	p.t.Helper()
	for other, o := range p.nodes {
		if other != name {
			o.router.Lose()
		}
	}
	p.cut()
	p.led("")
	synctest.Wait()
	p.stop(name)
}

// cut breaks all links.
func (p *relayPair) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		_ = l.Close() // that is all
	}
	p.links = nil
}

func TestWithoutALeaderOnlyWhatNeedsOneWaits(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c, other := p.client("b"), p.client("b")
		c.want(":0\r\n", "DBSIZE")
		p.crash("a")
		c.send("DBSIZE")
		if got := other.do("PING", "CLIENT GETNAME", "INFO replication"); !strings.HasPrefix(got, "+PONG\r\n$-1\r\n$") {
			t.Errorf("got %q", got)
		}
		time.Sleep(pairWait - 1)
		if got := c.received(); got != "" {
			t.Errorf("before its time is over: %q", got)
		}
		time.Sleep(time.Nanosecond)
		if got := c.received(); !strings.HasPrefix(got, "-LOADING ") {
			t.Errorf("got %q", got)
		}
		c.send("DBSIZE")
		time.Sleep(pairWait / 2)
		p.lead("b")
		if got := c.received(); got != ":0\r\n" {
			t.Errorf("after a node has taken over: %q", got)
		}
	})
}

func TestALeaseOutlivesItsLeader(t *testing.T) {
	for _, next := range []string{"a", "b"} {
		t.Run(next, func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c := p.client("b")
				c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
				c.send("FILA.LEASE orders BLOCK 10000", "DBSIZE", "FILA.ENQUEUE orders x")
				time.Sleep(4 * time.Second)
				p.crash("a")
				time.Sleep(time.Second)
				p.lead(next)
				time.Sleep(5*time.Second - time.Millisecond)
				if got := c.received(); got != "" {
					t.Errorf("before the rest of its time: %q", got)
				}
				time.Sleep(time.Second)
				if got := c.received(); !strings.HasPrefix(got, "*0\r\n:1\r\n-MISCONF ") {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// A hand-over under load: every command of every client is answered, none with an error, and each has
// happened once.
func TestAHandOverRefusesNoClient(t *testing.T) {
	withPair(t, func(p *relayPair) {
		p.client("a").want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		const clients, rounds, pipeline = 8, 60, 5
		var wg sync.WaitGroup
		for i := range clients {
			c := p.client([]string{"a", "b"}[i%2])
			wg.Go(func() {
				for round := range rounds {
					var lines []string
					for n := range pipeline {
						lines = append(lines, fmt.Sprintf("FILA.ENQUEUE orders %d-%d-%d KEY k%d", i, round, n, i))
					}
					c.send(lines...)
					for c.count("\r\n$36\r\n") < pipeline-1 || !c.ends("\r\n") {
						time.Sleep(time.Millisecond)
						if c.count("-") > 0 && c.count("\r\n-") > 0 {
							break
						}
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
					c.mu.Lock()
					if got := string(c.got); strings.HasPrefix(got, "-") || strings.Contains(got, "\r\n-") {
						t.Errorf("client %d got %q", i, clipped(got))
					}
					c.got = nil
					c.mu.Unlock()
				}
			})
		}
		from, to := "a", "b"
		for range 10 {
			time.Sleep(17 * time.Millisecond)
			p.handOver(from, to)
			from, to = to, from
		}
		wg.Wait()
		if n := p.depth("orders"); n != clients*rounds*pipeline {
			t.Errorf("%d messages, want %d", n, clients*rounds*pipeline)
		}
	})
}

// A leader that ceases under load answers what it cannot know with MISCONF. The clients of the other node
// get no other error: what had no effect is sent again.
func TestAClientOfAFollowerIsNotToldToTryAgain(t *testing.T) {
	withPair(t, func(p *relayPair) {
		p.client("a").want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		const clients, rounds = 8, 30
		var wg sync.WaitGroup
		var done, unknown atomic.Int64
		for i := range clients {
			c := p.client("b")
			wg.Go(func() {
				for range rounds {
					c.send("FILA.ENQUEUE orders 1", "FILA.ENQUEUE orders 2", "FILA.ENQUEUE orders 3")
					for c.count("\r\n$36\r\n")+c.count("\r\n-MISCONF ") < 3 || !c.ends("\r\n") {
						time.Sleep(time.Millisecond)
						if c.count("\r\n-") > c.count("\r\n-MISCONF ") {
							break
						}
					}
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
					done.Add(int64(c.count("\r\n$36\r\n")))
					unknown.Add(int64(c.count("\r\n-MISCONF ")))
					c.mu.Lock()
					if got := string(c.got); strings.Contains("\r\n"+strings.ReplaceAll(got, "-MISCONF ", ""), "\r\n-") {
						t.Errorf("client %d got %q", i, clipped(got))
					}
					c.got = nil
					c.mu.Unlock()
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		n := p.nodes["a"]
		n.engine.Halt(engine.ErrDeposed)
		<-n.running // with the cause
		n.engine = nil
		n.Vacate()
		p.lead("b")
		wg.Wait()
		if n := int64(p.depth("orders")); n < done.Load() || n > done.Load()+unknown.Load() || done.Load()+unknown.Load() != clients*rounds*3 {
			t.Errorf("%d messages, %d were acknowledged and of %d it is unknown", n, done.Load(), unknown.Load())
		}
	})
}

// Word of the next leader may come before this node has ceased, and word that there is none after it
// leads.
func TestTheNextLeaderIsKnownWhateverComesFirst(t *testing.T) {
	withPair(t, func(p *relayPair) {
		a := p.nodes["a"]
		c := p.client("a")
		c.want(":0\r\n", "DBSIZE")
		a.Follow("")
		c.want(":0\r\n", "DBSIZE")
		a.Hold()
		a.Follow("b")
		a.engine.Stop()
		if err := <-a.running; err != nil {
			t.Error(err)
		}
		a.engine = nil
		c.send("DBSIZE")
		p.lead("b")
		time.Sleep(100 * time.Millisecond) // b is asked again after a pause
		c.want(":0\r\n:0\r\n", "DBSIZE")
		a.Vacate()
		c.want(":0\r\n", "DBSIZE")
	})
}

// The link breaks after any number of bytes, in either direction. Each command has one reply, and that
// is true.
func TestTheLinkMayBreakAnywhere(t *testing.T) {
	for budget := 1; budget < 1500; budget += 7 {
		withPair(t, func(p *relayPair) {
			p.client("a").want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
			p.budget = budget
			c := p.client("b")
			c.send("FILA.ENQUEUE orders one", "DBSIZE", "FILA.LEASE orders BLOCK 100", "ECHO local", "FILA.ENQUEUE orders two")
			time.Sleep(pairWait)
			got := c.received()
			first, rest, _ := strings.Cut(got, ":1\r\n")
			unknown := strings.HasPrefix(first, "-MISCONF ")
			if !unknown && !strings.HasPrefix(first, "$36\r\n") {
				t.Fatalf("after %d bytes: the first reply of %q", budget, got)
			}
			lease, last, found := strings.Cut(rest, "$5\r\nlocal\r\n")
			if !found || !strings.HasPrefix(lease, "*1\r\n") && (!unknown || lease != "*0\r\n") {
				t.Fatalf("after %d bytes: the lease or what follows it in %q", budget, got)
			}
			lastUnknown := strings.HasPrefix(last, "-MISCONF ")
			if !lastUnknown && !strings.HasPrefix(last, "$36\r\n") {
				t.Fatalf("after %d bytes: the last reply of %q", budget, got)
			}
			time.Sleep(time.Minute) // leases that were lost with the link end
			n := p.depth("orders")
			most, least := 2, 2
			if unknown {
				least--
			}
			if lastUnknown {
				least--
			}
			if n < least || n > most {
				t.Fatalf("after %d bytes: %d messages, but the replies are %q", budget, n, got)
			}
		})
	}
}
