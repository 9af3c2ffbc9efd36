// Package top is `fila top`: queues with what they hold and their rates, or the fairness keys of a
// queue with their shares, as a picture that follows the broker.
//
// figures.go asks the broker, picture.go makes lines of what it says, model.go decides what a key
// press does, and live.go runs it on a terminal. The picture is a function of figures and view, so
// that tests compare it with golden files.
package top

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/client"
)

// Figures are what the broker has said at a moment.
type Figures struct {
	At     time.Time
	Broker string // its address
	Totals client.Map
	Queue  string // whose keys the items are; empty: they are queues
	Items  []Item
	// More says that there are more items than were asked for.
	More bool
}

// Item is a queue or a fairness key, with its fields as on the wire.
type Item struct {
	client.Map
	// Rates are how much the counters have grown in a second, since the sample before. They are
	// missing in the first sample.
	Rates map[string]float64
}

// Name is that of the queue or the key.
func (i *Item) Name() string {
	if name := i.Get("name"); name != nil {
		return client.Text(name)
	}
	return i.Text("key")
}

// Sampler asks a broker again and again. It is not safe for concurrent use.
type Sampler struct {
	Dial func(ctx context.Context) (*client.Conn, error)
	Addr string

	conn   *client.Conn
	before *Figures
}

const (
	// queuesMax is how many queues are asked for, those that were created first.
	queuesMax = 1000
	// keysMax is how many keys are asked for, the deepest: as many as the broker has in an order.
	keysMax = 100
	// answerTime is how long the broker has for one sample.
	answerTime = 10 * time.Second
)

// Close ends the connection.
func (s *Sampler) Close() {
	if s.conn != nil {
		_ = s.conn.Close() // what was asked was answered
		s.conn = nil
	}
}

// Sample asks for all queues, or with a name for the keys of that one. After an error that is no
// refusal the next call connects again.
func (s *Sampler) Sample(ctx context.Context, queue string) (*Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if s.conn != nil && s.conn.Err() != nil {
		s.Close()
	}
	if s.conn == nil {
		var err error
		if s.conn, err = s.Dial(ctx); err != nil {
			return nil, err
		}
	}
	f := &Figures{At: time.Now(), Broker: s.Addr, Queue: queue}
	var err error
	if queue == "" {
		err = s.queues(ctx, f)
	} else {
		err = s.keys(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	f.rates(s.before)
	s.before = f
	return f, nil
}

// Explain asks why the next message of a fairness key is not with a consumer.
func (s *Sampler) Explain(ctx context.Context, queue, key string) (client.Map, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if s.conn == nil {
		return nil, errors.New("there is no broker")
	}
	reply, err := s.conn.Do(ctx, "FILA.EXPLAIN", queue, "KEY", key)
	m, _ := reply.(client.Map)
	return m, err
}

func (s *Sampler) queues(ctx context.Context, f *Figures) error {
	totals, err := s.conn.Do(ctx, "FILA.STATS")
	if err != nil {
		return err
	}
	f.Totals, _ = totals.(client.Map)
	next, err := s.page(ctx, f, "FILA.FIGURES", "COUNT", strconv.Itoa(queuesMax))
	f.More = next != "0"
	return err
}

// page adds the items of a page, and returns the cursor of the next one.
func (s *Sampler) page(ctx context.Context, f *Figures, command ...string) (next string, err error) {
	reply, err := s.conn.Do(ctx, command...)
	if err != nil {
		return "", err
	}
	page, _ := reply.([]any)
	if len(page) != 2 {
		return "", errors.New("the broker answered " + command[0] + " with something else than a page")
	}
	for _, m := range client.Maps(page[1]) {
		f.Items = append(f.Items, Item{Map: m})
	}
	return client.Text(page[0]), nil
}

func (s *Sampler) keys(ctx context.Context, f *Figures) error {
	totals, err := s.conn.Do(ctx, "FILA.QUEUE", "INFO", f.Queue)
	if err != nil {
		return err
	}
	f.Totals, _ = totals.(client.Map)
	_, err = s.page(ctx, f, "FILA.KEYS", f.Queue, "COUNT", strconv.Itoa(keysMax), "BY", "DEPTH")
	f.More = f.Totals.Int("keys") > int64(len(f.Items))
	return err
}

// Counters are the fields whose growth is shown.
func Counters() []string {
	return []string{"enqueued", "delivered", "acked", "nacked", "expired", "passed"}
}

// rates compares with the sample before, if that was of the same. A counter that is smaller than
// before began again, with the broker.
func (f *Figures) rates(before *Figures) {
	if before == nil || before.Queue != f.Queue {
		return
	}
	earlier := map[string]*Item{}
	for i := range before.Items {
		earlier[before.Items[i].Name()] = &before.Items[i]
	}
	seconds := f.At.Sub(before.At).Seconds()
	for i := range f.Items {
		now := &f.Items[i]
		now.Rates = map[string]float64{}
		if was, ok := earlier[now.Name()]; ok && seconds > 0 {
			for _, name := range Counters() {
				now.Rates[name] = max(0, float64(now.Int(name)-was.Int(name))/seconds)
			}
		}
	}
}
