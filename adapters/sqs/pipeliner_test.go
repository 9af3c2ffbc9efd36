package sqs

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipelines is a broker that answers pipelines when it is told to.
type pipelines struct{ sent, answer chan []string }

func (p *pipelines) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
}

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, cmd := range cmds {
			names = append(names, cmd.Name())
		}
		p.sent <- names
		<-p.answer
		return nil
	}
}

// pipelinerTo returns a pipeliner to a broker that is no process. It is used in a bubble.
func pipelinerTo(t *testing.T) (*pipeliner, *pipelines) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	p := &pipelines{make(chan []string, 10), make(chan []string)}
	client.AddHook(p)
	return &pipeliner{client: client}, p
}

func commands(names ...string) []redis.Cmder {
	var cmds []redis.Cmder
	for _, name := range names {
		cmds = append(cmds, redis.NewCmd(context.Background(), name))
	}
	return cmds
}

// sends fails unless the next pipeline has these commands.
func (p *pipelines) sends(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-p.sent:
		if !slices.Equal(got, want) {
			t.Fatalf("sent %v, want %v", got, want)
		}
	default:
		t.Fatalf("nothing is sent, want %v", want)
	}
}

func TestAPipelinerGathersWhileAPipelineIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := pipelinerTo(t)
		var done atomic.Int64
		for _, names := range [][]string{{"a"}, {"b", "c"}, {"d", "e"}} {
			go func() {
				l.do(commands(names...)...)
				done.Add(1)
			}()
			synctest.Wait()
		}
		p.sends(t, "a")
		if len(p.sent) > 0 || done.Load() > 0 {
			t.Fatal("the others do not wait")
		}
		p.answer <- nil
		p.sends(t, "b", "c", "d", "e")
		if n := done.Load(); n != 1 {
			t.Fatalf("%d requests are done, want the first one", n)
		}
		p.answer <- nil
		synctest.Wait()
		if n := done.Load(); n != 3 || l.running != 0 {
			t.Fatalf("%d requests are done, %d pipelines are under way", n, l.running)
		}
	})
}

func TestAPipelinerDoesNotWaitForAPipelineThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := pipelinerTo(t)
		for _, name := range []string{"a", "b"} {
			go l.do(commands(name)...)
			synctest.Wait()
		}
		p.sends(t, "a")
		time.Sleep(pipelineSlow + 1) // on the clock of the bubble: it takes no time
		go l.do(commands("c")...)
		p.sends(t, "b", "c")
		p.answer <- nil
		p.answer <- nil
		synctest.Wait()
		if l.running != 0 {
			t.Fatalf("%d pipelines are under way", l.running)
		}
	})
}

func TestAPipelinerSendsALargeRequestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := pipelinerTo(t)
		go l.do(commands("a")...)
		p.sends(t, "a")
		go l.do(redis.NewCmd(context.Background(), "large", strings.Repeat("x", pipelineBytes)))
		p.sends(t, "large")
		p.answer <- nil
		p.answer <- nil
		synctest.Wait()
	})
}
