package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/history"
)

// topic is bound to all queues, to some of them for messages with a header.
const topic = "events"

// bindings are the arguments that bind the queues.
func bindings() [][]any {
	return [][]any{
		{topic, steady},
		{topic, serial},
		{topic, fickle, "HEADER", "to", "*fickle*"},
		{topic, tight, "HEADER", "to", "*tight*"},
	}
}

// publish is a message for several queues. One without an answer is sent again: each attempt has the
// same deduplication id and another payload, so that the judge sees which of them a queue stored.
type publish struct {
	name       string
	attempts   int
	key        string
	to         string
	size       int
	dedup      bool
	bestEffort bool
	since      time.Duration
}

// marked begins the payloads of publishes. The tag of a copy has its queue.
const marked = "*"

// tagIn returns the tag of a message that a queue has delivered.
func tagIn(tag, queue string) string {
	if strings.HasPrefix(tag, marked) {
		return tag + "@" + strings.TrimSuffix(queue, ".dlq")
	}
	return tag
}

// newPublish makes up a message.
func (c *client) newPublish() *publish {
	c.published++
	return &publish{
		name: fmt.Sprintf("%s%d-%d", marked, c.number, c.published), key: serialKey(c.chance.IntN(serialKeys)), size: c.chance.IntN(2000),
		to: []string{"none", "fickle", "tight", "fickle,tight"}[c.chance.IntN(4)], dedup: c.one(2), bestEffort: c.one(2), since: c.now(),
	}
}

// next returns the command of the next attempt, and an enqueue for each queue that is to get it.
func (u *publish) next() ([]any, []history.Enqueue) {
	u.attempts++
	tag := fmt.Sprintf("%s.%d", u.name, u.attempts)
	args := []any{"FILA.PUBLISH", topic, payload(tag, u.size), "KEY", u.key, "HEADER", "to", u.to}
	e := history.Enqueue{Publish: tag, Key: u.key, Priority: 4}
	if u.dedup {
		e.Dedup = u.name
		args = append(args, "DEDUP", u.name)
	}
	if u.bestEffort {
		args = append(args, "BESTEFFORT")
	}
	var copies []history.Enqueue
	for _, queue := range []string{fickle, serial, steady, tight} {
		if (queue == fickle || queue == tight) && !strings.Contains(u.to, queue) {
			continue
		}
		e.Queue, e.Tag, e.TTL = queue, tagIn(tag, queue), 0
		e.Optional = u.bestEffort && queue == tight
		if queue == fickle {
			e.TTL = fickleTTL
		}
		copies = append(copies, e)
	}
	return args, copies
}

// publish sends what had no answer again, or some new messages, in one pipeline.
func (c *client) publish() {
	all := c.publishes
	if c.publishes = nil; len(all) == 0 {
		for range 1 + c.chance.IntN(4) {
			all = append(all, c.newPublish())
		}
	}
	p := c.redis.Pipeline()
	copies := make([][]history.Enqueue, len(all))
	for i, u := range all {
		var args []any
		args, copies[i] = u.next()
		p.Do(context.Background(), args...)
	}
	span := history.Span{Call: c.now()}
	cmds, failed := p.Exec(context.Background())
	span.Return = c.now()
	for i, u := range all {
		cmd, ok := cmds[i].(*redis.Cmd)
		if !ok || c.notePublish(span, copies[i], cmd) || !u.dedup || c.now()-u.since > dedupWindow/2 {
			continue
		}
		c.publishes = append(c.publishes, u)
	}
	if failed != nil {
		pause(3 * time.Millisecond)
	}
}

// notePublish records the outcome of a publish and reports whether it is known.
func (c *client) notePublish(span history.Span, copies []history.Enqueue, cmd *redis.Cmd) bool {
	reply, err := cmd.Result()
	outcome, sent := c.outcome(err)
	if !sent {
		return false
	}
	ids := map[string]string{}
	if err == nil {
		ids = c.ids(reply)
	}
	for _, e := range copies {
		e.Span, e.Outcome, e.ID = span, outcome, ids[e.Queue]
		if outcome == history.Done && e.ID == "" && e.Optional {
			e.Outcome = history.Refused
		}
		delete(ids, e.Queue)
		if e.ID != "" {
			offer(c.fresh, subject{e.Queue, e.ID})
			if e.Dedup == "" || c.first(e.ID) {
				c.backlog.Add(1)
			}
		}
		c.Enqueues = append(c.Enqueues, e)
	}
	for queue := range ids {
		c.unexpected("a publish was answered with the queue " + queue + ", whose binding it does not meet")
	}
	return outcome != history.Unknown
}

// ids parses the reply to a publish.
func (c *client) ids(reply any) map[string]string {
	ids := map[string]string{}
	list, ok := reply.([]any)
	for _, item := range list {
		pair, isPair := item.([]any)
		if !isPair || len(pair) != 2 {
			ok = false
			continue
		}
		ids[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
	}
	if !ok {
		c.unexpected(fmt.Sprintf("a publish was answered with %.200v", reply))
	}
	return ids
}
