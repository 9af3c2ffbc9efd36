package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lane sends the commands of several requests in one pipeline, which costs gateway and broker less than a pipeline for each:
// while one is under way, what comes gathers for the next. The commands of a request stay together and in their order.
//
// A pipeline is answered as a whole. So nothing that waits for messages is sent here, what is large has a connection of its
// own, and when the last pipeline began more than laneSlow ago, the next one does not wait for it.
type lane struct {
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
	laneSlow  = 20 * time.Millisecond
	laneBytes = 64 << 10 // of the arguments of a request that is sent together with others
)

// do sends commands and returns when each has its reply or its error.
func (l *lane) do(cmds ...redis.Cmder) {
	if size(cmds) > laneBytes {
		l.send([]*request{{cmds: cmds}})
		return
	}
	t := &request{cmds, make(chan struct{})}
	now := time.Now()
	l.mu.Lock()
	l.gathered = append(l.gathered, t)
	if l.running == 0 || now.Sub(l.began) > laneSlow {
		l.running++
		l.began = now
		go l.run()
	}
	l.mu.Unlock()
	<-t.done
}

// run sends what has gathered until there is no more.
func (l *lane) run() {
	l.mu.Lock()
	for len(l.gathered) > 0 {
		all := l.gathered
		l.gathered, l.began = nil, time.Now()
		l.mu.Unlock()
		l.send(all)
		for _, t := range all {
			close(t.done)
		}
		l.mu.Lock()
	}
	l.running--
	l.mu.Unlock()
}

// send sends the commands of requests in one pipeline. A request that is given up does not end those of others.
func (l *lane) send(all []*request) {
	p := l.client.Pipeline()
	for _, t := range all {
		_ = p.BatchProcess(context.Background(), t.cmds...)
	}
	_, _ = p.Exec(context.Background()) // each command has its error
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
