package bench

import (
	"context"
	"math/rand/v2"
	"strconv"
)

// fila is a Fila broker.
type fila struct {
	client

	groups int // groups opened so far: a name is known after the group has ended
}

func (*fila) Name() string { return "fila" }

// visibility of a lease in ms, so long that no lease expires during a round.
const visibility = 3600_000

func (f *fila) Prepare(ctx context.Context, s Shape) error {
	f.shape, f.noise = s, NewNoise(s.Payload)
	create := []string{"FILA.QUEUE", "CREATE", s.Queue, "VISIBILITY", strconv.Itoa(visibility), "NODLQ"}
	if s.Signals {
		create = append(create, "SIGNALS", "ON")
	}
	if s.Ordered {
		create = append(create, "ORDERED", "ON")
	}
	if s.KeepDone {
		create = append(create, "KEEPDONE", strconv.Itoa(visibility))
	}
	if err := f.do(ctx, create); err != nil {
		return err
	}
	var more [][]string
	limit := func(throttle string) {
		more = append(more, []string{"FILA.THROTTLE", "SET", throttle, "RATE", "1000000000", "CONCURRENCY", "1000000000"})
	}
	for i := range s.Throttles {
		limit(f.throttle(i))
	}
	if s.Tenants {
		limit(f.tenants())
	}
	if s.Grouped {
		f.groups++
		more = append(more, []string{"FILA.GROUP", "OPEN", f.group(), s.Queue, "all are done"})
	}
	if s.Hook != "" {
		more = append(more, []string{"FILA.SCRIPT", "LOAD", s.Queue, "ON_ENQUEUE", s.Hook})
	}
	for i := range s.Budgets {
		more = append(more, []string{"FILA.BUDGET", "SET", f.budget(int64(i))}, []string{"FILA.BUDGET", "CREDIT", f.budget(int64(i)), "1000000000000"})
	}
	return f.do(ctx, more...)
}

func (f *fila) Clean(ctx context.Context) error {
	commands := [][]string{{"FILA.QUEUE", "DELETE", f.shape.Queue, "FORCE"}}
	for i := range f.shape.Throttles {
		commands = append(commands, []string{"FILA.THROTTLE", "DEL", f.throttle(i)})
	}
	for i := range f.shape.Budgets {
		commands = append(commands, []string{"FILA.BUDGET", "DEL", f.budget(int64(i))})
	}
	if f.shape.Tenants {
		commands = append(commands, []string{"FILA.THROTTLE", "DEL", f.tenants()})
	}
	if f.shape.Grouped {
		commands = append(commands, []string{"FILA.GROUP", "CANCEL", f.group()})
	}
	return f.do(ctx, commands...)
}

// tenants is the pattern of the throttles of keys.
func (f *fila) tenants() string { return f.shape.Queue + ":*" }

func (f *fila) group() string { return f.shape.Queue + "-" + strconv.Itoa(f.groups) }

func (f *fila) budget(i int64) string { return f.shape.Queue + ":" + strconv.FormatInt(i, 10) }

func (f *fila) throttle(i int) string { return f.shape.Queue + ":" + strconv.Itoa(i) }

func (f *fila) Connect(ctx context.Context) (Session, error) {
	conn, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	return newSession(conn, &f.client, f.words()), nil
}

// words are the encoded commands of one session.
func (f *fila) words() *filaWords {
	w := &filaWords{shape: f.shape, count: 3 + 2*f.shape.Throttles}
	var c Conn
	switch {
	case f.shape.Hook != "":
		c.bulk("HEADER")
		c.bulk("tenant")
		w.count += 3
	case f.shape.Keys > 0:
		c.bulk("KEY")
		w.count += 2
	}
	w.keyed, c.out = c.out, nil
	for i := range f.shape.Throttles {
		c.bulk("THROTTLE")
		c.bulk(f.throttle(i))
	}
	if f.shape.Grouped {
		w.count += 2
		c.bulk("GROUP")
		c.bulk(f.group())
	}
	w.throttled = c.out
	if f.shape.Budgets > 0 {
		w.count += 2
	}
	if f.shape.Tenants {
		w.count += 2
	}
	return w
}

type filaWords struct {
	shape     Shape
	count     int    // arguments of an enqueue
	keyed     []byte // part of an enqueue before the key; empty without keys
	throttled []byte // part after the key
	key       []byte
	own       []byte // name of the budget or the throttle of a key
}

func (f *filaWords) enqueue(c *Conn, payload []byte) {
	c.array(f.count)
	c.bulk("FILA.ENQUEUE")
	c.bulk(f.shape.Queue)
	c.bulkBytes(payload)
	no := int64(0)
	if len(f.keyed) > 0 {
		no = rand.Int64N(int64(max(f.shape.Keys, 1)))
		f.key = append(f.key[:0], "tenant-"...)
		f.key = strconv.AppendInt(f.key, no, 10)
		c.out = append(c.out, f.keyed...)
		c.bulkBytes(f.key)
	}
	c.out = append(c.out, f.throttled...)
	if n := f.shape.Budgets; n > 0 {
		f.named(c, "BUDGET", no%int64(n))
	}
	if f.shape.Tenants {
		f.named(c, "THROTTLE", no)
	}
}

// named adds an option with the name of what belongs to a number of the queue.
func (f *filaWords) named(c *Conn, option string, no int64) {
	f.own = append(f.own[:0], f.shape.Queue...)
	f.own = append(f.own, ':')
	f.own = strconv.AppendInt(f.own, no, 10)
	c.bulk(option)
	c.bulkBytes(f.own)
}

func (f *filaWords) lease(c *Conn, n int) {
	c.Append("FILA.LEASE", f.shape.Queue, "COUNT", strconv.Itoa(n), "BLOCK", strconv.Itoa(blockMillis))
}

// deliveries reads an array of messages, whose first fields are receipt and payload.
func (*filaWords) deliveries(c *Conn, each func(receipt, payload []byte)) error {
	n, err := c.list()
	if err != nil {
		return err
	}
	var receipt []byte
	for range n {
		fields, err := c.list()
		if err != nil {
			return err
		}
		r, err := c.text()
		if err != nil {
			return err
		}
		receipt = append(receipt[:0], r...)
		payload, err := c.text()
		if err != nil {
			return err
		}
		each(receipt, payload)
		for range fields - 2 {
			if err := c.skip(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *filaWords) ack(c *Conn, receipts [][]byte) {
	c.array(2 + len(receipts))
	c.bulk("FILA.ACK")
	c.bulk(f.shape.Queue)
	for _, r := range receipts {
		c.bulkBytes(r)
	}
}

func (*filaWords) acked(c *Conn, want int) error { return wantCount(c, want, "acked") }
