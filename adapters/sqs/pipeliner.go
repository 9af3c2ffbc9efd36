package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipeliner sends the commands of several requests in one pipeline, which costs gateway and broker less than a pipeline for each:
// while one is under way, what comes gathers for the next. The commands of a request stay together and in their order.
//
// A pipeline is answered as a whole. So nothing that waits for messages is sent here, what is large has a connection of its
// own, and when the last pipeline began more than pipelineSlow ago, the next one does not wait for it.
type pipeliner struct {
	client redis.UniversalClient

	mu       sync.Mutex
	gathered []*request
	running  int       // pipelines under way
	began    time.Time // the last of them
}

// request is the commands of one request of a client.
type request struct {
	cmds []redis.Cmder
	done chan struct{}
}

const (
	pipelineSlow  = 20 * time.Millisecond
	pipelineBytes = 64 << 10 // of the arguments of a request that is sent together with others
)

// do sends commands and returns when each has its reply or its error.
func (p *pipeliner) do(cmds ...redis.Cmder) {
	if size(cmds) > pipelineBytes {
		p.send([]*request{{cmds: cmds}})
		return
	}
	r := &request{cmds, make(chan struct{})}
	now := time.Now()
	p.mu.Lock()
	p.gathered = append(p.gathered, r)
	if p.running == 0 || now.Sub(p.began) > pipelineSlow {
		p.running++
		p.began = now
		go p.run()
	}
	p.mu.Unlock()
	<-r.done
}

// run sends what has gathered until there is no more.
func (p *pipeliner) run() {
	p.mu.Lock()
	for len(p.gathered) > 0 {
		all := p.gathered
		p.gathered, p.began = nil, time.Now()
		p.mu.Unlock()
		p.send(all)
		for _, r := range all {
			close(r.done)
		}
		p.mu.Lock()
	}
	p.running--
	p.mu.Unlock()
}

// send sends the commands of requests in one pipeline. A request that is given up does not end those of others.
func (p *pipeliner) send(all []*request) {
	pipe := p.client.Pipeline()
	for _, r := range all {
		_ = pipe.BatchProcess(context.Background(), r.cmds...)
	}
	_, _ = execute(context.Background(), pipe)
}

// execute sends a pipeline, after which each command has its reply or its error. When the broker refuses the connection itself, with
// WRONGPASS or LOADING, go-redis leaves the commands with neither, which looks like success.
func execute(ctx context.Context, pipe redis.Pipeliner) ([]redis.Cmder, error) {
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		for _, cmd := range cmds {
			if c, is := cmd.(*redis.Cmd); is && c.Err() == nil && c.Val() == nil {
				c.SetErr(err)
			}
		}
	}
	return cmds, err
}

// size is the length of the texts among the arguments of commands.
func size(cmds []redis.Cmder) int {
	n := 0
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			switch a := arg.(type) {
			case string:
				n += len(a)
			case []byte:
				n += len(a)
			}
		}
	}
	return n
}
