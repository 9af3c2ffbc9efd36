package sqs

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

type receiveInput struct {
	QueueURL                    string   `json:"QueueUrl"`
	AttributeNames              []string `q:"AttributeName"`
	MessageSystemAttributeNames []string `q:"MessageSystemAttributeName"`
	MessageAttributeNames       []string `q:"MessageAttributeName"`
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptID     string `json:"ReceiveRequestAttemptId"` // no receive is repeated
}

type received struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	MD5OfBody              string
	Body                   string
	Attributes             map[string]string    `json:",omitempty" q:"Attribute"`
	MD5OfMessageAttributes string               `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty" q:"MessageAttribute"`
}

type receiveOutput struct {
	Messages []received `json:",omitempty" q:"Message"`
}

// optional returns a number within bounds, or else.
func optional(n *int, name string, least, most, otherwise int) (int, error) {
	if n == nil {
		return otherwise, nil
	}
	if *n < least || *n > most {
		return 0, invalidParameter.of("Value %d for parameter %s is invalid. Reason: Must be between %d and %d, if provided.", *n, name, least, most)
	}
	return *n, nil
}

// receiveMessage leases messages. It waits in portions of BlockFor, so that a client that is gone is noticed, and what
// was leased for it meanwhile is released.
func receiveMessage(c *call, in *receiveInput) (*receiveOutput, error) {
	q, err := c.lookUp(in.QueueURL)
	if err != nil {
		return nil, err
	}
	count, err := optional(in.MaxNumberOfMessages, "MaxNumberOfMessages", 1, batchMax, 1)
	if err != nil {
		return nil, err
	}
	wait, err := optional(in.WaitTimeSeconds, "WaitTimeSeconds", 0, 20, q.defaults.wait)
	if err != nil {
		return nil, err
	}
	args := []any{"FILA.LEASE", q.name, "COUNT", count}
	if in.VisibilityTimeout != nil {
		seconds, err := optional(in.VisibilityTimeout, "VisibilityTimeout", 0, 43_200, 0)
		if err != nil {
			return nil, err
		}
		args = append(args, "VISIBILITY", max(int64(seconds)*1000, 1))
	}
	if c.user != "" {
		args = append(args, "CONSUMER", c.user)
	}
	leases, err := c.lease(q, args, time.Now().Add(time.Duration(wait)*time.Second))
	if err != nil {
		return nil, err
	}
	out := &receiveOutput{Messages: make([]received, len(leases))}
	for i := range leases {
		out.Messages[i] = leases[i].shown(q, in)
	}
	return out, nil
}

// lease leases messages until there are some, or a time has come. The first command does not wait, and goes with those of others.
func (c *call) lease(q *queue, args []any, until time.Time) ([]lease, error) {
	asked := redis.NewCmd(c.ctx, args...)
	c.leases.do(asked)
	for {
		reply, err := asked.Slice()
		if err != nil {
			return nil, err
		}
		leases := make([]lease, 0, len(reply))
		for _, item := range reply {
			leases = append(leases, leaseOf(item))
		}
		if hungUp(c.conn) {
			return nil, c.release(q, leases)
		}
		block := min(time.Until(until), BlockFor).Milliseconds()
		if len(leases) > 0 || block <= 0 {
			return leases, nil
		}
		asked = c.client.Do(c.ctx, append(slices.Clip(args), "BLOCK", block)...)
	}
}

// release returns messages whose client is gone.
func (c *call) release(q *queue, leases []lease) error {
	if len(leases) == 0 {
		return gone()
	}
	args := []any{"FILA.RELEASE", q.name}
	for _, l := range leases {
		args = append(args, l.receipt)
	}
	ctx, done := detached(c.ctx)
	defer done()
	if err := c.client.Do(ctx, args...).Err(); err != nil {
		return err // they come back when their visibility timeout has passed
	}
	return gone()
}

// gone is the error of a receive whose client is gone. One that has only closed its sending side sees it, and so do the metrics.
func gone() *fault {
	return clientGone.of("the client has closed its connection, or its sending side, while the receive waited")
}

// lease is a message as FILA.LEASE replies it.
type lease struct {
	receipt, payload, key string
	headers               map[string]string
	deliveries            int64
	enqueuedAt            int64 // Unix milliseconds
}

func leaseOf(item any) lease {
	fields, _ := item.([]any)
	if len(fields) < 8 {
		return lease{}
	}
	l := lease{deliveries: number(fields[5]), enqueuedAt: number(fields[6])}
	l.receipt, _ = fields[0].(string)
	l.payload, _ = fields[1].(string)
	l.key, _ = fields[3].(string)
	pairs, _ := fields[2].([]any)
	if len(pairs) > 0 {
		l.headers = make(map[string]string, len(pairs)/2)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		l.headers[name], _ = pairs[i+1].(string)
	}
	return l
}

// noKey is the fairness key of messages that were sent without a MessageGroupId.
const noKey = "default"

// shown is a message as a client receives it.
func (l *lease) shown(q *queue, in *receiveInput) received {
	id, _, _ := strings.Cut(l.receipt, ":")
	m := received{
		MessageID:     id,
		ReceiptHandle: base64.RawURLEncoding.EncodeToString([]byte(l.receipt)),
		MD5OfBody:     md5Of([]byte(l.payload)),
		Body:          l.payload,
	}
	m.MessageAttributes = l.attributes(in.MessageAttributeNames)
	m.MD5OfMessageAttributes = md5OfAttributes(m.MessageAttributes)
	asked := slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)
	if len(asked) == 0 {
		return m
	}
	for name, value := range l.system(q, id) {
		if value != "" && (slices.Contains(asked, "All") || slices.Contains(asked, name)) {
			if m.Attributes == nil {
				m.Attributes = map[string]string{}
			}
			m.Attributes[name] = value
		}
	}
	return m
}

// system returns the system attributes of a message; those that it does not have are empty.
func (l *lease) system(q *queue, id string) map[string]string {
	first := time.Now().UnixMilli()
	if l.deliveries > 1 {
		first = l.enqueuedAt // the broker does not keep it: no receive was before
	}
	a := map[string]string{
		"ApproximateReceiveCount":          strconv.FormatInt(l.deliveries, 10),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(first, 10),
		"SentTimestamp":                    strconv.FormatInt(l.enqueuedAt, 10),
		"SenderId":                         l.headers[headerSender],
		"AWSTraceHeader":                   l.headers[headerTrace],
	}
	if q.fifo || l.key != noKey {
		a["MessageGroupId"] = l.key
	}
	if q.fifo {
		a["MessageDeduplicationId"], a["SequenceNumber"] = l.headers[headerDedup], sequence(id)
	}
	return a
}

// attributes returns the attributes of a message that are asked for: by name, by a prefix before .*, or all of them.
func (l *lease) attributes(asked []string) map[string]attribute {
	var types map[string]string
	if text := l.headers[headerTypes]; text != "" {
		_ = json.Unmarshal([]byte(text), &types) // what is not valid has no types: all are texts
	}
	var all map[string]attribute
	for name, value := range l.headers {
		if strings.HasPrefix(name, "AWS.") || !slices.ContainsFunc(asked, func(a string) bool { return asksFor(a, name) }) {
			continue
		}
		a := attribute{DataType: types[name]}
		if a.DataType == "" {
			a.DataType = "String"
		}
		if a.binary() {
			a.BinaryValue = []byte(value)
		} else {
			a.StringValue = &value
		}
		if all == nil {
			all = map[string]attribute{}
		}
		all[name] = a
	}
	return all
}

// asksFor reports whether an entry of MessageAttributeNames asks for the attribute with a name.
func asksFor(asked, name string) bool {
	if prefix, is := strings.CutSuffix(asked, ".*"); is {
		return strings.HasPrefix(name, prefix)
	}
	return asked == "All" || asked == name
}

// receiptOf returns the receipt of a handle.
func receiptOf(handle string) (string, error) {
	if handle == "" {
		return "", missingParameter.of("The request must contain the parameter ReceiptHandle.")
	}
	b, err := base64.RawURLEncoding.DecodeString(handle)
	if err != nil {
		return "", receiptHandleIsInvalid.of("The input receipt handle %q is not a valid receipt handle.", handle)
	}
	return string(b), nil
}

// inFlight returns the queue of a URL and the receipt of a handle.
func (c *call) inFlight(address, handle string) (*queue, string, error) {
	q, err := c.lookUp(address)
	if err != nil {
		return nil, "", err
	}
	receipt, err := receiptOf(handle)
	return q, receipt, err
}

type deleteInput struct {
	QueueURL      string `json:"QueueUrl"`
	ReceiptHandle string
}

func deleteMessage(c *call, in *deleteInput) error {
	q, receipt, err := c.inFlight(in.QueueURL, in.ReceiptHandle)
	if err != nil {
		return err
	}
	acked, err := c.change("FILA.ACK", q.name, receipt).Int64()
	return deleted(q, acked, err)
}

// deleted is the outcome of an ack. Like SQS, a standard queue answers a handle whose time is over as if it had deleted
// the message, which another consumer may have by now; a FIFO queue refuses it.
func deleted(q *queue, acked int64, err error) error {
	if err == nil && acked == 0 && q.fifo {
		return invalidParameter.of("Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
	}
	return err
}

type entry struct {
	ID                string `json:"Id"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

type deleteBatchInput struct {
	QueueURL string  `json:"QueueUrl"`
	Entries  []entry `q:"DeleteMessageBatchRequestEntry"`
}

type succeeded struct {
	ID string `json:"Id"`
}

type deleteBatchOutput struct {
	Successful []succeeded   `q:"DeleteMessageBatchResultEntry"`
	Failed     []failedEntry `json:",omitempty" q:"BatchResultErrorEntry"`
}

// deleteMessageBatch acks the messages of a standard queue in one command, since none of them has an outcome of its own. If
// that is refused, and for FIFO queues, there is a command for each.
func deleteMessageBatch(c *call, in *deleteBatchInput) (*deleteBatchOutput, error) {
	out := &deleteBatchOutput{Successful: make([]succeeded, 0, len(in.Entries))}
	q, err := c.batch(in.QueueURL, in.Entries)
	if err != nil {
		return nil, err
	}
	if !q.fifo && c.ackAll(q, in.Entries) {
		for i := range in.Entries {
			out.Successful = append(out.Successful, succeeded{in.Entries[i].ID})
		}
		return out, nil
	}
	replies := c.entries(in.Entries, func(_ *entry, receipt string) ([]any, error) {
		return []any{"FILA.ACK", q.name, receipt}, nil
	})
	for i, r := range replies {
		if err := deleted(q, number(r.value), r.err); err != nil {
			out.Failed = append(out.Failed, failedAs(in.Entries[i].ID, err))
		} else {
			out.Successful = append(out.Successful, succeeded{in.Entries[i].ID})
		}
	}
	return out, nil
}

// ackAll acks the messages of all entries in one command, and reports whether it was carried out.
func (c *call) ackAll(q *queue, list []entry) bool {
	args := []any{"FILA.ACK", q.name}
	for i := range list {
		receipt, err := receiptOf(list[i].ReceiptHandle)
		if err != nil {
			return false
		}
		args = append(args, receipt)
	}
	return c.change(args...).Err() == nil
}

// batch returns the queue of a batch whose entries have ids as they must be.
func (c *call) batch(address string, list []entry) (*queue, error) {
	q, err := c.lookUp(address)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return q, checkBatch(ids)
}

// entries sends a command for each entry of a batch, together.
func (c *call) entries(list []entry, command func(e *entry, receipt string) ([]any, error)) []replied {
	return c.together(len(list), func(i int) ([]any, error) {
		receipt, err := receiptOf(list[i].ReceiptHandle)
		if err != nil {
			return nil, err
		}
		return command(&list[i], receipt)
	})
}

type visibilityInput struct {
	QueueURL          string `json:"QueueUrl"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

// extend returns the command that sets when a message is visible again. Zero seconds are a failed delivery, since the
// receive counts toward maxReceiveCount: the message is ready after the backoff of its queue, which CreateQueue sets to 0.
func extend(q *queue, seconds *int, receipt string) ([]any, error) {
	if seconds == nil {
		return nil, missingParameter.of("The request must contain the parameter VisibilityTimeout.")
	}
	n, err := optional(seconds, "VisibilityTimeout", 0, 43_200, 0)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return []any{"FILA.NACK", q.name, receipt, "ERROR", "returned by its consumer"}, nil
	}
	return []any{"FILA.EXTEND", q.name, receipt, int64(n) * 1000}, nil
}

func changeVisibility(c *call, in *visibilityInput) error {
	q, receipt, err := c.inFlight(in.QueueURL, in.ReceiptHandle)
	if err != nil {
		return err
	}
	args, err := extend(q, in.VisibilityTimeout, receipt)
	if err != nil {
		return err
	}
	return c.change(args...).Err()
}

type visibilityBatchInput struct {
	QueueURL string  `json:"QueueUrl"`
	Entries  []entry `q:"ChangeMessageVisibilityBatchRequestEntry"`
}

type visibilityBatchOutput struct {
	Successful []succeeded   `q:"ChangeMessageVisibilityBatchResultEntry"`
	Failed     []failedEntry `json:",omitempty" q:"BatchResultErrorEntry"`
}

func changeVisibilityBatch(c *call, in *visibilityBatchInput) (*visibilityBatchOutput, error) {
	out := &visibilityBatchOutput{Successful: []succeeded{}}
	q, err := c.batch(in.QueueURL, in.Entries)
	if err != nil {
		return nil, err
	}
	replies := c.entries(in.Entries, func(e *entry, receipt string) ([]any, error) {
		return extend(q, e.VisibilityTimeout, receipt)
	})
	for i, r := range replies {
		if refusedAs(r.err, "LEASELOST") { // SQS has another code for it in a batch than in ChangeMessageVisibility
			r.err = receiptHandleIsInvalid.of("Message does not exist or is not available for visibility timeout change")
		}
		if r.err != nil {
			out.Failed = append(out.Failed, failedAs(in.Entries[i].ID, r.err))
		} else {
			out.Successful = append(out.Successful, succeeded{in.Entries[i].ID})
		}
	}
	return out, nil
}
