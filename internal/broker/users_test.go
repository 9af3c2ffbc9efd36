package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/storage"
)

// users reads the users of the pair as a node does.
func (p *relayPair) users(node string) commands.UserStore {
	return func(known uint64) (uint64, map[string]string, error) {
		p.mu.Lock()
		behind := p.behind[node]
		p.mu.Unlock()
		if behind {
			return known, nil, nil
		}
		return storage.ReadUsers(p.store, known)
	}
}

// refresh has a node look at the users, as it does at intervals.
func (p *relayPair) refresh(node string) {
	p.t.Helper()
	if err := p.nodes[node].handler.RefreshUsers(); err != nil {
		p.t.Error(err)
	}
	synctest.Wait()
}

const (
	ok        = "+OK\r\n"
	wrongPass = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
)

func (c *relayClient) closed() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

func TestAChangeOfUsersIsInForceAtTheLeaderWithItsReply(t *testing.T) {
	withPair(t, func(p *relayPair) {
		admin, atA, atB := p.client("a"), p.client("a"), p.client("b")
		admin.want(ok, "ACL SETUSER worker on >secret ~* &* +@all")
		atA.want(ok, "AUTH worker secret")
		atB.want(wrongPass, "AUTH worker secret")
		p.refresh("b")
		atB.want(ok, "AUTH worker secret")
		atB.want(ok, "FILA.QUEUE CREATE q")

		admin.want(ok, "ACL SETUSER worker -fila.enqueue")
		for _, c := range []*relayClient{atA, atB} { // the leader checks what b passes on
			if got := c.do("FILA.ENQUEUE q x"); !strings.HasPrefix(got, "-NOPERM") {
				t.Errorf("without the right: %q", got)
			}
		}
		admin.want(":1\r\n", "ACL DELUSER worker unknown")
		if !atA.closed() || atB.closed() {
			t.Errorf("after the deletion: closed at the leader %v, at the other node %v", atA.closed(), atB.closed())
		}
		atB.send("FILA.STATS q")
		time.Sleep(pairWait) // its stream was closed, and b opens another
		if got := atB.received(); !strings.HasPrefix(got, "-NOAUTH") {
			t.Errorf("a deleted user by way of a node that does not know it: %q", got)
		}
		p.refresh("b")
		if !atB.closed() {
			t.Error("a deleted user has a connection")
		}
	})
}

func TestChangesOfOneUserAddUp(t *testing.T) {
	withPair(t, func(p *relayPair) {
		a := p.client("a")
		a.want(strings.Repeat(ok, 3)+":0\r\n", "ACL SETUSER w on +fila.get", "ACL SETUSER w +fila.lease nopass", "ACL SETUSER w %R~jobs*", "ACL DELUSER unknown")
		if got := a.do("ACL LIST"); !strings.Contains(got, "user w on nopass %R~jobs* resetchannels -@all +fila.get +fila.lease") {
			t.Errorf("%q", got)
		}
	})
}

func TestAChangeThatIsRefusedChangesNothing(t *testing.T) {
	withPair(t, func(p *relayPair) {
		for _, node := range []string{"a", "b"} {
			c := p.client(node)
			for line, want := range map[string]string{
				"ACL SETUSER w on +nosuch": "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL\r\n",
				"ACL DELUSER default":      "-ERR The 'default' user cannot be removed\r\n",
			} {
				c.want(want, line)
			}
			if _, lines, err := storage.ReadUsers(p.store, 0); err != nil || len(lines) > 0 {
				t.Errorf("the store has users: %v, %v", lines, err)
			}
		}
		if got := p.client("b").do("ACL LOAD"); !strings.HasPrefix(got, "-ERR the users are in the store of the cluster: ACL LOAD") {
			t.Errorf("ACL LOAD at a node that does not lead: %q", got)
		}
	})
}

// What a client has changed at a node is in force there when it has the reply.
func TestANodeRepliesWhenItHasTheChangeItself(t *testing.T) {
	withPair(t, func(p *relayPair) {
		b := p.client("b")
		for _, lines := range [][]string{{"ACL SETUSER w on >p"}, {"MULTI", "ACL SETUSER w on >q", "EXEC"}} {
			before := b.do(lines...)
			if strings.Contains(before, "*1\r\n") || len(lines) == 1 && before != "" {
				t.Errorf("before b has the change it answers %q", before)
			}
			p.refresh("b")
			if got := b.received(); !strings.HasSuffix(got, ok) {
				t.Errorf("with the change b answers %q", got)
			}
		}
		p.client("b").want(ok, "AUTH w q")
		// A node that does not get the change does not wait for ever.
		p.mu.Lock()
		p.behind["b"] = true
		p.mu.Unlock()
		b.send("ACL SETUSER w off")
		n := 0
		for got := b.received(); got == ""; got = b.received() {
			if n++; n > 100 {
				t.Fatal("no reply")
			}
			p.refresh("b")
		}
		if n < 20 {
			t.Errorf("b waited for %d refreshes only", n)
		}
		// Nor does a node that stops.
		b.want("", "ACL SETUSER w on")
		p.nodes["b"].handler.EndRefreshes()
		if got := b.received(); got != ok {
			t.Errorf("when b stops it answers %q", got)
		}
	})
}

func TestALeaseAtAnotherNodeEndsWithTheRightToIt(t *testing.T) {
	withPair(t, func(p *relayPair) {
		admin, b := p.client("a"), p.client("b")
		admin.want(ok+ok, "ACL SETUSER w on >p ~* +@all", "FILA.QUEUE CREATE q")
		p.refresh("b")
		b.want(ok, "AUTH w p")
		b.want("", "FILA.LEASE q BLOCK 0")
		admin.want(ok, "ACL SETUSER w -fila.lease")
		b.received() // the wait has ended, or ends when b has the change
		p.refresh("b")
		id := admin.do("FILA.ENQUEUE q x")
		if !strings.HasPrefix(id, "$") || p.depth("q") != 1 {
			t.Errorf("the message is %q, and %d are ready", id, p.depth("q"))
		}
	})
}

func TestAUserThatDeletesItselfGetsTheReply(t *testing.T) {
	withPair(t, func(p *relayPair) {
		admin, own := p.client("a"), p.client("a")
		admin.want(ok, "ACL SETUSER w on >p ~* +@all")
		own.want(ok, "AUTH w p")
		own.want(":1\r\n", "ACL DELUSER w")
		if !own.closed() {
			t.Error("its connection is open")
		}
	})
}
