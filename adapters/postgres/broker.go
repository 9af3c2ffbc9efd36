package outbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// chunk bounds what is one transaction of the broker, in which its other clients wait.
const (
	chunkRows  = 256
	chunkBytes = 4 << 20
)

// replyWithin is how long a reply of the broker may take.
const replyWithin = 10 * time.Second

// broker is Fila, at one address or at those of several nodes of a cluster. Commands go to one of them.
type broker struct {
	nodes []*redis.Client
	at    atomic.Int64
}

// openBroker returns the broker of a URL: fila://[user:password@]host:port, filas:// with TLS, further nodes of a
// cluster as ?addr=host:port; redis:// and rediss:// are the same. Errors have no password.
func openBroker(text string, connections int) (*broker, error) {
	if rest, is := strings.CutPrefix(text, "fila"); is {
		text = "redis" + rest
	}
	o, err := redis.ParseClusterURL(text)
	if err != nil {
		if u, is := errors.AsType[*url.Error](err); is {
			err = u.Err // without the URL
		}
		return nil, fmt.Errorf("URL of the broker: %w", err)
	}
	b := &broker{}
	for _, addr := range o.Addrs {
		node := &redis.Options{
			Addr: addr, Username: o.Username, Password: o.Password, ClientName: "fila-outbox", DisableIdentity: true,
			MaxRetries: -1, PoolSize: connections, DialTimeout: 5 * time.Second, ReadTimeout: replyWithin, ContextTimeoutEnabled: true,
			OnConnect: isFila,
		}
		if o.TLSConfig != nil {
			node.TLSConfig = o.TLSConfig.Clone()
			node.TLSConfig.MinVersion = max(node.TLSConfig.MinVersion, tls.VersionTLS12)
			if host, _, err := net.SplitHostPort(addr); err == nil {
				node.TLSConfig.ServerName = host
			}
		}
		b.nodes = append(b.nodes, redis.NewClient(node))
	}
	return b, nil
}

// isFila refuses a server that is not Fila: it would refuse each row for good, as a command that it does not know.
func isFila(ctx context.Context, conn *redis.Conn) error {
	reply, err := conn.Do(ctx, "COMMAND", "INFO", "FILA.ENQUEUE").Slice()
	if err == nil && (len(reply) != 1 || reply[0] == nil) {
		return errors.New("the server is not Fila: it has no FILA.ENQUEUE")
	}
	return nil // what another error says, the commands will say
}

// client returns the client of the present node.
func (b *broker) client() *redis.Client {
	return b.nodes[int(b.at.Load())%len(b.nodes)]
}

// next goes on to the next node, if it is still the one that failed.
func (b *broker) next(failed *redis.Client) {
	at := b.at.Load()
	if b.nodes[int(at)%len(b.nodes)] == failed {
		b.at.CompareAndSwap(at, at+1)
	}
}

func (b *broker) close() error {
	var all []error
	for _, c := range b.nodes {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

// enqueue enqueues rows in their order and notes what became of each, see [held]. The error is about the broker; rows of
// which nothing is noted may be in it, too.
//
// The rows of a chunk are one transaction, so that it is all at once that a broker takes no messages: a later row of a
// key never overtakes an earlier one that was refused a moment before. In a transaction that holds for limits, too: what is
// full for the one is full for the next.
func (b *broker) enqueue(ctx context.Context, rows []*row, h *held) (err error) {
	client := b.client()
	defer func() {
		if err != nil {
			b.next(client)
			err = &brokerError{err}
		}
	}()
	limit := chunkRows
	for len(rows) > 0 {
		var part []*row
		for size := 0; len(rows) > 0 && len(part) < limit; rows = rows[1:] {
			r := rows[0]
			if r.done || h.waits(r) {
				continue
			}
			if size += len(r.payload); len(part) > 0 && size > chunkBytes {
				break
			}
			part = append(part, r)
		}
		if len(part) == 1 {
			err = alone(ctx, client, part[0], h)
		} else if len(part) > 1 {
			var again bool
			if again, err = together(ctx, client, part, h); errors.Is(err, errTooMuch) {
				again, limit, err = true, 1, nil
			}
			if again {
				rows = append(part, rows...)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errTooMuch is returned for rows that are too much for a transaction, or one of them for a message: each has its own
// answer when they are enqueued one by one.
var errTooMuch = errors.New("too much for a transaction")

// alone enqueues one row.
func alone(ctx context.Context, client *redis.Client, r *row, h *held) error {
	reply, err := client.Do(ctx, r.command()...).Text()
	if err == nil && reply == "QUEUED" {
		return errors.New("FILA.ENQUEUE is in a transaction that was left open")
	}
	if err != nil && len(r.payload) > batchBytes && (judge(err) == brokerIs || strings.Contains(err.Error(), "Protocol error")) {
		err = tooLong(ctx, client, r, err)
	}
	return h.note(r, err)
}

// tooLong returns what the error of a connection was that ended while a long row was sent. A broker ends a connection with
// a command that exceeds its limit, and its refusal is often not read; such a row would stop all others.
func tooLong(ctx context.Context, client *redis.Client, r *row, err error) error {
	const setting = "limits.command_bytes"
	answer, failed := client.ConfigGet(ctx, setting).Result()
	if judge(failed) == brokerIs {
		return err
	}
	if limit, unknown := strconv.Atoi(answer[setting]); unknown == nil && limit >= len(r.payload) {
		return err
	}
	return tooBigError(fmt.Sprintf("TOOBIG too big: payload of %d bytes: the broker has ended the connection", len(r.payload)))
}

// tooBigError is a refusal that could not be read.
type tooBigError string

func (e tooBigError) Error() string { return string(e) }
func (tooBigError) RedisError()     {}

// together enqueues rows in a transaction. With again it has changed nothing and noted why for some of them: those that are
// left are to be tried once more.
func together(ctx context.Context, client *redis.Client, part []*row, h *held) (again bool, err error) {
	conn := client.Conn()
	defer func() {
		if err != nil { // a transaction that was begun must not be in the pool
			_ = conn.Do(context.WithoutCancel(ctx), "DISCARD").Err() // it fails on one that is broken, which is not in the pool
		}
		_ = conn.Close()
	}()
	// The reply is awaited: were MULTI refused and the broker ready a moment later, the commands would be no transaction.
	if err := conn.Do(ctx, "MULTI").Err(); err != nil {
		return false, err
	}
	pipe := conn.Pipeline()
	var queued []*redis.Cmd
	for _, r := range part {
		queued = append(queued, pipe.Do(ctx, r.command()...))
	}
	exec := pipe.Do(ctx, "EXEC")
	_, _ = pipe.Exec(ctx) // each command has its error
	for i, r := range part {
		switch err := queued[i].Err(); {
		case err == nil:
			continue
		case code(err) == "TOOBIG":
			return false, errTooMuch
		default:
			if err := h.note(r, err); err != nil {
				return false, err
			}
			again = true
		}
	}
	if again { // EXEC has refused all
		return true, nil
	}
	replies, err := exec.Slice()
	if err != nil && code(err) == "EXECABORT" { // limits are checked at EXEC: a row, or all of them, exceed one
		return false, errTooMuch
	}
	if err != nil {
		return false, err
	}
	if len(replies) != len(part) {
		return false, fmt.Errorf("EXEC has answered %d replies to %d commands", len(replies), len(part))
	}
	for i, r := range part {
		refused, _ := replies[i].(error)
		if judge(refused) == final { // some things cannot be done in a transaction
			err = alone(ctx, client, r, h)
		} else {
			err = h.note(r, refused)
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// window returns the deduplication window of a queue.
func (b *broker) window(ctx context.Context, queue string) (time.Duration, error) {
	info, err := b.client().Do(ctx, "FILA.QUEUE", "INFO", queue).Result()
	if err != nil {
		return 0, err
	}
	fields, _ := info.(map[any]any)
	ms, is := fields["dedup_window_ms"].(int64)
	if !is {
		return 0, fmt.Errorf("FILA.QUEUE INFO has answered no dedup_window_ms: %T", info)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
