package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/commands"
)

// What clients of a node see of the loss of the leader, by the kind of client and what it does.

// failOver loses the leader, and after a while another node leads.
func (p *relayPair) failOver(from, to string) {
	p.t.Helper()
	p.crash(from)
	time.Sleep(pairWait / 2)
	p.lead(to)
	time.Sleep(100 * time.Millisecond) // for attempts that pause
}

func TestClientsOfRedisClusterThroughAFailover(t *testing.T) {
	withPair(t, func(p *relayPair) {
		leading, following := p.clientOf("a", commands.ModeCluster), p.clientOf("b", commands.ModeCluster)
		leading.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		following.want("-MOVED 105 a.test:7000\r\n*1\r\n$6\r\norders\r\n", "FILA.ENQUEUE orders one", "FILA.QUEUE LIST")
		p.crash("a")
		following.send("FILA.ENQUEUE orders two") // it waits for a leader
		if got := following.received(); got != "" {
			t.Errorf("while none leads: %q", got)
		}
		p.lead("b")
		if got := following.received(); !strings.HasPrefix(got, "$36\r\n") {
			t.Errorf("the new leader answers %q", got)
		}
		following.want(":1\r\n", "EXISTS orders")
		leading.want("-MOVED 105 b.test:7000\r\n", "FILA.ENQUEUE orders three")
		p.crash("b")
		leading.send("FILA.ENQUEUE orders four")
		time.Sleep(pairWait)
		if got := leading.received(); !strings.HasPrefix(got, "-CLUSTERDOWN ") {
			t.Errorf("without a leader: %q", got)
		}
		p.lead("a")
		if n := p.depth("orders"); n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
	})
}

// An application that follows redirections, as client libraries of Redis Cluster do, loses nothing and sends
// nothing twice while leaders come and go in order.
func TestClientsOfRedisClusterThroughHandOvers(t *testing.T) {
	withPair(t, func(p *relayPair) {
		p.client("a").want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		const rounds = 20
		conns := map[string]*relayClient{"a": p.clientOf("a", commands.ModeCluster), "b": p.clientOf("b", commands.ModeCluster)}
		at, sent := "a", 0
		for round := range rounds {
			from, to := "a", "b"
			if round%2 == 1 {
				from, to = to, from
			}
			p.handOver(from, to)
			for redirected := false; ; redirected = true {
				got := conns[at].do("FILA.ENQUEUE orders x")
				if _, addr, moved := strings.Cut(got, "-MOVED 105 "); moved && !redirected {
					at = addr[:1]
					continue
				}
				if !strings.HasPrefix(got, "$36\r\n") {
					t.Fatalf("round %d: %q", round, got)
				}
				break
			}
			if sent++; at != to {
				t.Errorf("round %d: at node %s, which does not lead", round, at)
			}
		}
		if n := p.depth("orders"); n != sent {
			t.Errorf("%d messages, want %d", n, sent)
		}
	})
}

func TestClientsOfSentinelThroughAFailover(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c, watcher := p.clientOf("b", commands.ModeSentinel), p.clientOf("b", commands.ModeSentinel)
		c.want("*2\r\n$6\r\na.test\r\n$4\r\n5555\r\n", "SENTINEL get-master-addr-by-name fila")
		watcher.do("SUBSCRIBE +switch-master")
		p.crash("a")
		c.want("*2\r\n$6\r\na.test\r\n$4\r\n5555\r\n", "SENTINEL get-master-addr-by-name fila") // the last one
		p.lead("b")
		c.want("*2\r\n$6\r\nb.test\r\n$4\r\n5555\r\n", "SENTINEL get-master-addr-by-name fila")
		if got := watcher.received(); got != "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$28\r\nfila a.test 5555 b.test 5555\r\n" {
			t.Errorf("the subscriber hears %q", got)
		}
		c.want("*2\r\n$8\r\nsentinel\r\n*1\r\n$4\r\nfila\r\n", "ROLE")
	})
}

// A client that leaves while its lease is on the way to the next leader gets no message: the next client
// has it in its first attempt.
func TestAClientThatLeavesDuringAFailoverGetsNothing(t *testing.T) {
	for _, when := range []string{"before", "between", "after"} {
		t.Run(when, func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c := p.client("b")
				c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
				c.send("FILA.LEASE orders BLOCK 0")
				synctest.Wait()
				leaves := func(now string) {
					if when == now {
						c.close()
						synctest.Wait()
					}
				}
				leaves("before")
				p.crash("a")
				time.Sleep(pairWait / 2)
				leaves("between")
				p.lead("b")
				time.Sleep(100 * time.Millisecond)
				leaves("after")
				other := p.client("a")
				other.do("FILA.ENQUEUE orders hello")
				got := other.do("FILA.LEASE orders")
				if !strings.Contains(got, "hello") || !strings.Contains(got, "default\r\n:1\r\n:") {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// What was queued before the failover is executed after it, once: as one piece, or not at all.
func TestATransactionThroughAFailover(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c := p.client("b")
		c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		c.want("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n", "MULTI", "FILA.ENQUEUE orders 1", "PING", "FILA.ENQUEUE orders 2")
		p.failOver("a", "a")
		if got := c.do("EXEC"); !strings.HasPrefix(got, "*3\r\n$36\r\n") || !strings.Contains(got, "\r\n+PONG\r\n$36\r\n") {
			t.Errorf("EXEC answers %q", got)
		}
		c.do("MULTI", "FILA.ENQUEUE orders 3", "FILA.ENQUEUE orders 4")
		p.crash("a")
		c.send("EXEC") // it has not been sent to any leader: it waits for the next
		time.Sleep(pairWait / 2)
		p.lead("b")
		if got := c.received(); !strings.HasPrefix(got, "*2\r\n$36\r\n") {
			t.Errorf("EXEC that has waited answers %q", got)
		}
		if n := p.depth("orders"); n != 4 {
			t.Errorf("%d messages, want 4", n)
		}
	})
}

func TestSubscribersOfAFollowerThroughAFailover(t *testing.T) {
	for _, next := range []string{"a", "b"} {
		t.Run(next, func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c := p.client("b")
				p.client("a").do("FILA.QUEUE CREATE orders NODLQ")
				c.do("SUBSCRIBE fila:orders:enqueued fila::lost")
				p.failOver("a", next)
				p.client("a").do("FILA.ENQUEUE orders hello")
				got := c.received()
				lost, enqueued := strings.Index(got, `"event":"lost"`), strings.Index(got, `"event":"enqueued"`)
				if lost < 0 || enqueued < lost || strings.Count(got, `"event":"enqueued"`) != 1 {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}
