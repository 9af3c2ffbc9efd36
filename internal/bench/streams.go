package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// streams is a Redis server whose streams are used as a queue: XADD, XREADGROUP, and XACK with XDEL, so
// that completed messages are removed.
type streams struct{ client }

func (*streams) Name() string { return "streams" }

// group is the name of the consumer group.
const group = "workers"

func (r *streams) Prepare(ctx context.Context, s Shape) error {
	r.shape, r.noise = s, NewNoise(s.Payload)
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all replies have been read
	n, err := conn.Do("EXISTS", s.Queue)
	if err != nil {
		return err
	}
	if n != int64(0) {
		return fmt.Errorf("the server has a key %s already: choose another with --queue", s.Queue)
	}
	_, err = conn.Do("XGROUP", "CREATE", s.Queue, group, "$", "MKSTREAM")
	return err
}

func (r *streams) Clean(ctx context.Context) error { return r.do(ctx, []string{"DEL", r.shape.Queue}) }

func (r *streams) Connect(ctx context.Context) (Session, error) {
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	consumer := "c" + strconv.FormatUint(rand.Uint64(), 36)
	return newSession(conn, &r.client, &streamWords{queue: r.shape.Queue, consumer: consumer}), nil
}

type streamWords struct{ queue, consumer string }

func (s *streamWords) enqueue(c *Conn, payload []byte) {
	c.array(5)
	c.bulk("XADD")
	c.bulk(s.queue)
	c.bulk("*")
	c.bulk("p")
	c.bulkBytes(payload)
}

func (s *streamWords) lease(c *Conn, n int) {
	c.Append("XREADGROUP", "GROUP", group, s.consumer, "COUNT", strconv.Itoa(n), "BLOCK", strconv.Itoa(blockMillis), "STREAMS", s.queue, ">")
}

// deliveries reads an array of one stream, which consists of a name and entries; an entry is an id and an
// array of one field and its value.
func (*streamWords) deliveries(c *Conn, each func(id, payload []byte)) error {
	n, err := c.list()
	if err != nil || n == 0 {
		return err
	}
	if _, err := c.list(); err != nil {
		return err
	}
	if _, err := c.text(); err != nil {
		return err
	}
	if n, err = c.list(); err != nil {
		return err
	}
	var id []byte
	for range n {
		if _, err := c.list(); err != nil {
			return err
		}
		b, err := c.text()
		if err != nil {
			return err
		}
		id = append(id[:0], b...)
		if _, err := c.list(); err != nil {
			return err
		}
		if _, err := c.text(); err != nil {
			return err
		}
		payload, err := c.text()
		if err != nil {
			return err
		}
		each(id, payload)
	}
	return nil
}

// ack removes the entries from the group's pending entries and from the stream.
func (s *streamWords) ack(c *Conn, ids [][]byte) {
	c.array(3 + len(ids))
	c.bulk("XACK")
	c.bulk(s.queue)
	c.bulk(group)
	for _, id := range ids {
		c.bulkBytes(id)
	}
	c.array(2 + len(ids))
	c.bulk("XDEL")
	c.bulk(s.queue)
	for _, id := range ids {
		c.bulkBytes(id)
	}
}

func (*streamWords) acked(c *Conn, want int) error {
	if err := wantCount(c, want, "acked"); err != nil {
		return err
	}
	return wantCount(c, want, "removed")
}
