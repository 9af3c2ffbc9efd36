package sqs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	accountNames = regexp.MustCompile(`^[0-9]{12}$`)
	queueNames   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
)

// fifoSuffix ends the names of FIFO queues, which are ordered queues of Fila.
const fifoSuffix = ".fifo"

// checkQueueName checks the name of a new queue.
func checkQueueName(name string) error {
	base, _ := strings.CutSuffix(name, fifoSuffix)
	if name == "" {
		return missingParameter.of("The request must contain the parameter QueueName.")
	}
	if !queueNames.MatchString(base) || len(name) > 80 {
		return invalidParameter.of("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

// urlOf returns the URL of a queue.
func (c *call) urlOf(queue string) string {
	return c.base + "/" + c.gateway.cfg.Account + "/" + url.PathEscape(queue)
}

// arnOf returns the Amazon Resource Name of a queue.
func (c *call) arnOf(queue string) string {
	return "arn:aws:sqs:" + c.gateway.cfg.Region + ":" + c.gateway.cfg.Account + ":" + queue
}

// queueOfARN returns the queue of an Amazon Resource Name, in whatever region and account.
func queueOfARN(arn string) (string, error) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sqs" || parts[5] == "" {
		return "", invalidParameter.of("%q is no Amazon Resource Name of a queue, such as arn:aws:sqs:us-east-1:000000000000:orders", arn)
	}
	return parts[5], nil
}

// queueOfURL returns the queue of a URL: the last part of its path. The host may be any, as a gateway has several names.
func queueOfURL(address string) (string, error) {
	if address == "" {
		return "", missingParameter.of("The request must contain the parameter QueueUrl.")
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", invalidParameter.of("QueueUrl %q is not valid", address)
	}
	escaped := u.EscapedPath()
	name, err := url.PathUnescape(escaped[strings.LastIndexByte(escaped, '/')+1:])
	if err != nil || name == "" {
		return "", invalidParameter.of("QueueUrl %q names no queue", address)
	}
	return name, nil
}

// queue is a queue as SQS sees it: what Fila knows of it, and what the runtime configuration keeps beside that.
type queue struct {
	name     string
	info     map[string]any // FILA.QUEUE INFO
	kept     kept
	looked   time.Time
	fifo     bool
	defaults numbers // the numeric attributes as they are now
}

// kept is what Fila has no setting for.
type kept struct {
	Attributes map[string]string `json:"attributes,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	ModifiedAt int64             `json:"modified_at,omitempty"` // Unix seconds
	Move       *move             `json:"move,omitempty"`        // the last message move task from the queue
}

// configKey is the key of the runtime configuration that has what is kept of a queue.
func configKey(queue string) string { return "sqs:" + queue }

// recentQueues are queues that were looked up within the last moment.
type recentQueues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

// recentMax bounds the queues that are remembered.
const recentMax = 10_000

// lookUp returns a queue by its URL, from memory if it was looked up within the last second.
func (c *call) lookUp(address string) (*queue, error) {
	name, err := queueOfURL(address)
	if err != nil {
		return nil, err
	}
	c.queues.mu.Lock()
	q := c.queues.byName[name]
	c.queues.mu.Unlock()
	if q != nil && time.Since(q.looked) < lookEvery {
		return q, nil
	}
	return c.look(name)
}

// look reads a queue from the broker.
func (c *call) look(name string) (*queue, error) {
	p := c.client.Pipeline()
	info, config := p.Do(c.ctx, "FILA.QUEUE", "INFO", name), p.Do(c.ctx, "FILA.CONFIG", "GET", configKey(name))
	_, _ = execute(c.ctx, p)
	fields, err := fieldsOf(info.Result())
	if err != nil {
		c.forget(name)
		if refusedAs(err, "NOQUEUE") {
			return nil, queueDoesNotExist.of("The specified queue does not exist.")
		}
		return nil, err
	}
	q := &queue{name: name, info: fields, looked: time.Now(), fifo: number(fields["ordered"]) != 0}
	text, err := config.Text()
	if err == nil {
		err = json.Unmarshal([]byte(text), &q.kept)
		if err != nil {
			err = fmt.Errorf("what the configuration %s has is not valid: %w", configKey(name), err)
		}
	} else if absent(err) || refusedAs(err, "NOPERM") {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	q.defaults = q.numbers()
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if len(c.queues.byName) >= recentMax || c.queues.byName == nil {
		c.queues.byName = map[string]*queue{}
	}
	c.queues.byName[name] = q
	return q, nil
}

func (c *call) forget(name string) {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	delete(c.queues.byName, name)
}

// lock makes other requests that change what is kept of a queue wait until unlock is called: it is read, changed and stored as a
// whole. Those of other gateways do not wait: the broker stores a value whatever it was before.
func (c *call) lock(queue string) (unlock func()) {
	mu := &c.gateway.changes[maphash.String(c.gateway.seed, queue)%uint64(len(c.gateway.changes))]
	mu.Lock()
	return mu.Unlock
}

// keep stores what is kept of a queue. It is locked.
func (c *call) keep(name string, k kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	c.forget(name)
	return c.client.Do(c.ctx, "FILA.CONFIG", "SET", configKey(name), text).Err()
}

type queueName struct {
	QueueName string
	// Attributes and tags of CreateQueue.
	Attributes map[string]string `q:"Attribute"`
	Tags       map[string]string `json:"tags" q:"Tag,Key,Value"`
}

type queueURL struct {
	QueueURL string `json:"QueueUrl"`
}

// createQueue creates a queue. One that exists and has the attributes that are given is as good.
func createQueue(c *call, in *queueName) (*queueURL, error) {
	if err := checkQueueName(in.QueueName); err != nil {
		return nil, err
	}
	fifo := strings.HasSuffix(in.QueueName, fifoSuffix)
	if given := in.Attributes["FifoQueue"]; (given == "true") != fifo {
		return nil, invalidParameter.of("FifoQueue must be true for a queue whose name ends in %s, and must not be for others", fifoSuffix)
	}
	delete(in.Attributes, "FifoQueue")
	s, err := c.settings(in.QueueName, in.Attributes, fifo)
	if err != nil {
		return nil, err
	}
	defer c.lock(in.QueueName)()
	q, err := c.look(in.QueueName)
	if err != nil && faulty(err).kind == queueDoesNotExist {
		err = c.create(s, in.Tags, fifo)
		if err == nil {
			return &queueURL{c.urlOf(in.QueueName)}, nil
		}
		if refusedAs(err, "QUEUEEXISTS") { // another gateway has made it meanwhile
			q, err = c.look(in.QueueName)
		}
	}
	if err != nil {
		return nil, err
	}
	return c.existing(q, in.Attributes)
}

// create creates a queue. What is kept of it is stored first: if a crash prevents the rest, a request that is sent again stores it
// again. It is no transaction: that takes one more right, and when MULTI is refused, go-redis gives the replies to the commands
// after it to other requests.
func (c *call) create(s *settings, tags map[string]string, fifo bool) error {
	if err := c.keep(s.queue, kept{Attributes: s.kept, Tags: tags, ModifiedAt: time.Now().Unix()}); err != nil {
		return err
	}
	return c.client.Do(c.ctx, append([]any{"FILA.QUEUE", "CREATE", s.queue}, newQueue(s, fifo)...)...).Err()
}

// newQueue returns the options of a new queue: those of SQS, which retries at once and without end, and has no
// dead-letter queue unless it is given.
func newQueue(s *settings, fifo bool) []any {
	args := []any{"BACKOFF", 0, "BACKOFFJITTER", 0}
	if fifo {
		args = append(args, "ORDERED", "ON", "DEDUPWINDOW", (5 * time.Minute).Milliseconds())
	}
	defaults := []struct {
		token string
		value any
	}{{"VISIBILITY", 30_000}, {"TTL", 345_600_000}, {"MAXATTEMPTS", 0}}
	for _, d := range defaults {
		if !s.has(d.token) {
			args = append(args, d.token, d.value)
		}
	}
	if !s.has("DLQ") && !s.has("NODLQ") {
		args = append(args, "NODLQ")
	}
	return append(args, s.args...)
}

// existing answers CreateQueue for a queue that exists.
func (c *call) existing(q *queue, attributes map[string]string) (*queueURL, error) {
	now := c.attributesOf(q)
	for name, value := range attributes {
		if is := now[name]; is != value && !sameJSON(is, value) {
			return nil, queueNameExists.of("A queue already exists with the same name and a different value for attribute %s", name)
		}
	}
	return &queueURL{c.urlOf(q.name)}, nil
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func getQueueURL(c *call, in *struct{ QueueName string }) (*queueURL, error) {
	if in.QueueName == "" {
		return nil, missingParameter.of("The request must contain the parameter QueueName.")
	}
	q, err := c.look(in.QueueName)
	if err != nil {
		return nil, err
	}
	return &queueURL{c.urlOf(q.name)}, nil
}

func deleteQueue(c *call, in *queueURL) error {
	name, err := queueOfURL(in.QueueURL)
	if err != nil {
		return err
	}
	defer c.lock(name)()
	c.forget(name)
	err = c.client.Do(c.ctx, "FILA.QUEUE", "DELETE", name, "FORCE").Err()
	if err == nil || refusedAs(err, "NOQUEUE") { // a crash may have prevented this before
		err = cmp.Or(err, c.client.Do(c.ctx, "FILA.CONFIG", "DEL", configKey(name)).Err())
	}
	return err
}

func purgeQueue(c *call, in *queueURL) error {
	name, err := queueOfURL(in.QueueURL)
	if err != nil {
		return err
	}
	return c.client.Do(c.ctx, "FILA.PURGE", name).Err()
}

// page is which part of a list is asked for.
type page struct {
	MaxResults *int
	NextToken  string
}

// of returns the entries of a page of a sorted list, and the token of the next page. Tokens are the last names of pages.
func (p *page) of(names []string) (entries []string, next string, err error) {
	most := 1000
	if p.MaxResults != nil {
		if most = *p.MaxResults; most < 1 || most > 1000 {
			return nil, "", invalidParameter.of("Value %d for parameter MaxResults is invalid. Reason: Must be between 1 and 1000.", most)
		}
	}
	for _, name := range names {
		if name <= p.NextToken {
			continue
		}
		if len(entries) == most {
			return entries, entries[most-1], nil
		}
		entries = append(entries, name)
	}
	return entries, "", nil
}

type listInput struct {
	QueueNamePrefix string
	MaxResults      *int
	NextToken       string
}

type listOutput struct {
	QueueURLs []string `json:"QueueUrls,omitempty" q:"QueueUrl"`
	NextToken string   `json:",omitempty"`
}

func listQueues(c *call, in *listInput) (*listOutput, error) {
	names, err := c.client.Do(c.ctx, "FILA.QUEUE", "LIST", "MATCH", globEscape(in.QueueNamePrefix)+"*").StringSlice()
	if err != nil {
		return nil, err
	}
	names, next, err := (&page{in.MaxResults, in.NextToken}).of(names)
	if err != nil {
		return nil, err
	}
	if in.MaxResults == nil {
		next = "" // without MaxResults there is one page, of 1000 queues
	}
	out := &listOutput{NextToken: next}
	for _, name := range names {
		out.QueueURLs = append(out.QueueURLs, c.urlOf(name))
	}
	return out, nil
}

// globEscape returns a pattern that matches a text alone.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

type sourcesInput struct {
	QueueURL   string `json:"QueueUrl"`
	MaxResults *int
	NextToken  string
}

type sourcesOutput struct {
	QueueURLs []string `json:"queueUrls" q:"QueueUrl"`
	NextToken string   `json:",omitempty"`
}

// listDeadLetterSourceQueues lists the queues whose dead letters a queue gets.
func listDeadLetterSourceQueues(c *call, in *sourcesInput) (*sourcesOutput, error) {
	q, err := c.lookUp(in.QueueURL)
	if err != nil {
		return nil, err
	}
	names, err := c.client.Do(c.ctx, "FILA.QUEUE", "LIST").StringSlice()
	if err != nil {
		return nil, err
	}
	var sources []string
	for len(names) > 0 {
		some := names[:min(len(names), 500)]
		names = names[len(some):]
		infos, err := c.each(some, func(name string) []any { return []any{"FILA.QUEUE", "INFO", name} })
		if err != nil {
			return nil, err
		}
		for i, name := range some {
			if infos[i]["dlq"] == q.name {
				sources = append(sources, name)
			}
		}
	}
	sources, next, err := (&page{in.MaxResults, in.NextToken}).of(sources)
	if err != nil {
		return nil, err
	}
	out := &sourcesOutput{QueueURLs: []string{}, NextToken: next}
	for _, name := range sources {
		out.QueueURLs = append(out.QueueURLs, c.urlOf(name))
	}
	return out, nil
}

// each sends a command for each name together, and returns the maps that they reply, nil for one that was refused.
func (c *call) each(names []string, command func(name string) []any) ([]map[string]any, error) {
	p := c.client.Pipeline()
	for _, name := range names {
		p.Do(c.ctx, command(name)...)
	}
	cmds, err := execute(c.ctx, p)
	if err != nil && faulty(err).kind == serviceUnavailable {
		return nil, err
	}
	all := make([]map[string]any, len(names))
	for i, cmd := range cmds {
		all[i], _ = fieldsOf(cmd.(interface{ Result() (any, error) }).Result()) // one that was refused has none
	}
	return all, nil
}

type tagInput struct {
	QueueURL string            `json:"QueueUrl"`
	Tags     map[string]string `q:"Tag,Key,Value"`
	TagKeys  []string          `q:"TagKey"`
}

const tagsMax = 50

func tagQueue(c *call, in *tagInput) error {
	q, unlock, err := c.locked(in.QueueURL)
	if err != nil {
		return err
	}
	defer unlock()
	if len(in.Tags) == 0 {
		return missingParameter.of("The request must contain the parameter Tags.")
	}
	k := q.kept
	if k.Tags = maps.Clone(k.Tags); k.Tags == nil {
		k.Tags = map[string]string{}
	}
	for name, value := range in.Tags {
		if name == "" || len(name) > 128 || len(value) > 256 {
			return invalidParameter.of("a tag has a key of 1 to 128 bytes and a value of at most 256")
		}
		k.Tags[name] = value
	}
	if len(k.Tags) > tagsMax {
		return invalidParameter.of("Too many tags added for queue %s.", q.name)
	}
	return c.keep(q.name, k)
}

func untagQueue(c *call, in *tagInput) error {
	q, unlock, err := c.locked(in.QueueURL)
	if err != nil {
		return err
	}
	defer unlock()
	k := q.kept
	k.Tags = maps.Clone(k.Tags)
	for _, name := range in.TagKeys {
		delete(k.Tags, name)
	}
	return c.keep(q.name, k)
}

func listQueueTags(c *call, in *queueURL) (*struct {
	Tags map[string]string `json:",omitempty" q:"Tag,Key,Value"`
}, error) {
	q, err := c.fresh(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return &struct {
		Tags map[string]string `json:",omitempty" q:"Tag,Key,Value"`
	}{q.kept.Tags}, nil
}

// fresh reads a queue by its URL.
func (c *call) fresh(address string) (*queue, error) {
	name, err := queueOfURL(address)
	if err != nil {
		return nil, err
	}
	return c.look(name)
}

// locked locks a queue, by its URL, and reads it.
func (c *call) locked(address string) (q *queue, unlock func(), err error) {
	name, err := queueOfURL(address)
	if err != nil {
		return nil, nil, err
	}
	unlock = c.lock(name)
	if q, err = c.look(name); err != nil {
		unlock()
	}
	return q, unlock, err
}

// fieldsOf returns the fields of a reply that is a map.
func fieldsOf(reply any, err error) (map[string]any, error) {
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	switch r := reply.(type) {
	case map[any]any:
		for name, value := range r {
			fields[fmt.Sprint(name)] = value
		}
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			fields[fmt.Sprint(r[i])] = r[i+1]
		}
	}
	return fields, nil
}

// number returns a value of a reply as a number, 0 if it is none.
func number(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case string:
		i, _ := strconv.ParseInt(n, 10, 64) // 0: it is none
		return i
	}
	return 0
}
