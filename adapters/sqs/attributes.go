package sqs

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a queue's attributes become: settings of the queue in Fila, or values that are kept beside it.

// settings are attributes that a request sets.
type settings struct {
	queue string            // its name
	args  []any             // options of FILA.QUEUE CREATE and ALTER
	kept  map[string]string // what Fila has no setting for
	drop  []string          // of that, what is reset
}

// has reports whether an option is given.
func (s *settings) has(token string) bool { return slices.Contains(s.args, any(token)) }

// rangeOf bounds a numeric attribute; of those with a token, the option takes unit times the value.
type rangeOf struct {
	least, most int
	token       string
	unit        int64
}

const messageMax = 1 << 20 // bytes of a message with its attributes, and of a batch

func numeric() map[string]rangeOf {
	return map[string]rangeOf{
		"DelaySeconds":                  {0, 900, "", 0},
		"MaximumMessageSize":            {1024, messageMax, "", 0},
		"MessageRetentionPeriod":        {60, 1_209_600, "TTL", 1000},
		"ReceiveMessageWaitTimeSeconds": {0, 20, "", 0},
		"VisibilityTimeout":             {0, 43_200, "VISIBILITY", 1000},
		"KmsDataKeyReusePeriodSeconds":  {60, 86_400, "", 0},
	}
}

// choices are the attributes with few values, and whether only FIFO queues have them.
func choices() map[string]struct {
	values []string
	fifo   bool
} {
	type choice = struct {
		values []string
		fifo   bool
	}
	return map[string]choice{
		"ContentBasedDeduplication": {[]string{"true", "false"}, true},
		"DeduplicationScope":        {[]string{"messageGroup", "queue"}, true},
		"FifoThroughputLimit":       {[]string{"perQueue", "perMessageGroupId"}, true},
		"SqsManagedSseEnabled":      {[]string{"true", "false"}, false},
	}
}

// settings checks attributes that are to be set for a queue.
func (c *call) settings(queue string, attributes map[string]string, fifo bool) (*settings, error) {
	s := &settings{queue: queue, kept: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := c.set(s, name, attributes[name], fifo); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (c *call) set(s *settings, name, value string, fifo bool) error {
	if r, is := numeric()[name]; is {
		return s.number(name, value, r, fifo)
	}
	if choice, is := choices()[name]; is {
		if choice.fifo && !fifo {
			return invalidAttributeName.of("Unknown Attribute %s: only queues whose name ends in %s have it.", name, fifoSuffix)
		}
		if !slices.Contains(choice.values, value) {
			return invalidAttributeValue.of("Invalid value for the parameter %s: it must be one of %s.", name, strings.Join(choice.values, ", "))
		}
		s.kept[name] = value
		return nil
	}
	switch name {
	case "RedrivePolicy":
		return c.redrivePolicy(s, value, fifo)
	case "RedriveAllowPolicy":
		if value != "" && !allowPolicyOf(value).valid() {
			return invalidAttributeValue.of("Invalid value for the parameter %s: redrivePermission must be allowAll, denyAll or byQueue, the last with 1 to 10 sourceQueueArns.", name)
		}
		s.keep(name, value)
		return nil
	case "Policy", "KmsMasterKeyId":
		if value != "" {
			return unsupportedOperation.of("%s is not supported: rights are those of the broker's users, and its disk is encrypted by the system.", name)
		}
		return nil
	case "FifoQueue":
		return invalidAttributeValue.of("FifoQueue is given when a queue is created, and cannot be changed.")
	}
	return invalidAttributeName.of("Unknown Attribute %s.", name)
}

// keep keeps a value, or resets it if it is empty.
func (s *settings) keep(name, value string) {
	if value == "" {
		s.drop = append(s.drop, name)
		return
	}
	s.kept[name] = value
}

func (s *settings) number(name, value string, r rangeOf, fifo bool) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < r.least || n > r.most {
		return invalidAttributeValue.of("Invalid value for the parameter %s: it must be from %d to %d.", name, r.least, r.most)
	}
	if fifo && name == "DelaySeconds" && n > 0 {
		return unsupportedOperation.of("DelaySeconds is not supported for FIFO queues: ordered queues of Fila have no delayed messages.")
	}
	if r.token == "" {
		s.kept[name] = value
		return nil
	}
	s.args = append(s.args, r.token, max(int64(n)*r.unit, 1))
	return nil
}

// policy is the value of RedrivePolicy. maxReceiveCount may be a number or a text.
type policy struct {
	Target string          `json:"deadLetterTargetArn"`
	Count  json.RawMessage `json:"maxReceiveCount"`
}

// redrivePolicy sets the dead-letter queue of a queue, and after how many receives a message is moved to it.
func (c *call) redrivePolicy(s *settings, value string, fifo bool) error {
	if value == "" {
		s.args = append(s.args, "MAXATTEMPTS", 0, "NODLQ")
		return nil
	}
	var p policy
	if err := json.Unmarshal([]byte(value), &p); err != nil || p.Target == "" {
		return invalidParameter.of("Value %s for parameter RedrivePolicy is invalid. Reason: it must have deadLetterTargetArn and maxReceiveCount.", value)
	}
	count, err := strconv.Atoi(strings.Trim(string(p.Count), `"`))
	if err != nil || count < 1 || count > 1000 {
		return invalidParameter.of("Value %s for parameter RedrivePolicy is invalid. Reason: Invalid value for maxReceiveCount, it must be from 1 to 1000.", value)
	}
	name, err := queueOfARN(p.Target)
	if err != nil {
		return err
	}
	dlq, err := c.look(name)
	if err != nil {
		return invalidParameter.of("Value %s for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist.", value)
	}
	if dlq.fifo != fifo {
		return invalidParameter.of("Value %s for parameter RedrivePolicy is invalid. Reason: Dead-letter queue must be of the same type as the source.", value)
	}
	if text := dlq.kept.Attributes["RedriveAllowPolicy"]; text != "" && !allowPolicyOf(text).allows(s.queue) {
		return invalidParameter.of("Value %s for parameter RedrivePolicy is invalid. Reason: the RedriveAllowPolicy of the dead-letter queue does not permit it.", value)
	}
	s.args = append(s.args, "MAXATTEMPTS", count, "DLQ", name)
	return nil
}

// allowPolicy is the value of RedriveAllowPolicy: which queues may have a queue as their dead-letter queue.
type allowPolicy struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns"`
}

// allowPolicyOf parses a policy. One that is not JSON is not valid.
func allowPolicyOf(text string) *allowPolicy {
	var p allowPolicy
	if json.Unmarshal([]byte(text), &p) != nil {
		return &allowPolicy{}
	}
	return &p
}

func (p *allowPolicy) valid() bool {
	const sourcesMax = 10
	switch p.Permission {
	case "allowAll", "denyAll":
		return len(p.Sources) == 0
	case "byQueue":
		return len(p.Sources) > 0 && len(p.Sources) <= sourcesMax && !slices.ContainsFunc(p.Sources, func(arn string) bool {
			_, err := queueOfARN(arn)
			return err != nil
		})
	}
	return false
}

func (p *allowPolicy) allows(queue string) bool {
	return p.Permission == "allowAll" || p.Permission == "byQueue" && slices.ContainsFunc(p.Sources, func(arn string) bool {
		name, err := queueOfARN(arn)
		return err == nil && name == queue
	})
}

// numbers are the numeric attributes of a queue that its messages need.
type numbers struct{ delay, size, wait int }

func (q *queue) numbers() numbers {
	n := numbers{delay: 0, size: messageMax, wait: 0}
	for name, to := range map[string]*int{"DelaySeconds": &n.delay, "MaximumMessageSize": &n.size, "ReceiveMessageWaitTimeSeconds": &n.wait} {
		if v, err := strconv.Atoi(q.kept.Attributes[name]); err == nil {
			*to = v
		}
	}
	return n
}

// visible is the number of messages that a receive may return. Those of a dead-letter queue are dead to Fila.
func (q *queue) visible() int64 { return number(q.info["ready"]) + number(q.info["dead"]) }

// attributesOf returns all attributes of a queue.
func (c *call) attributesOf(q *queue) map[string]string {
	decimal := func(n int64) string { return strconv.FormatInt(n, 10) }
	created := number(q.info["created_at"]) / 1000
	a := map[string]string{
		"ApproximateNumberOfMessages":           decimal(q.visible()),
		"ApproximateNumberOfMessagesNotVisible": decimal(number(q.info["leased"])),
		"ApproximateNumberOfMessagesDelayed":    decimal(number(q.info["delayed"])),
		"CreatedTimestamp":                      decimal(created),
		"LastModifiedTimestamp":                 decimal(max(q.kept.ModifiedAt, created)),
		"QueueArn":                              c.arnOf(q.name),
		"DelaySeconds":                          decimal(int64(q.defaults.delay)),
		"MaximumMessageSize":                    decimal(int64(q.defaults.size)),
		"ReceiveMessageWaitTimeSeconds":         decimal(int64(q.defaults.wait)),
		"MessageRetentionPeriod":                decimal(number(q.info["ttl_ms"]) / 1000),
		"VisibilityTimeout":                     decimal(number(q.info["visibility_ms"]) / 1000),
	}
	if q.fifo {
		a["FifoQueue"], a["ContentBasedDeduplication"] = "true", "false"
		a["DeduplicationScope"], a["FifoThroughputLimit"] = "queue", "perQueue"
	}
	maps.Copy(a, q.kept.Attributes)
	if dlq, has := q.info["dlq"].(string); has && number(q.info["max_attempts"]) > 0 {
		text, err := json.Marshal(map[string]any{"deadLetterTargetArn": c.arnOf(dlq), "maxReceiveCount": number(q.info["max_attempts"])})
		if err == nil {
			a["RedrivePolicy"] = string(text)
		}
	}
	return a
}

type attributesInput struct {
	QueueURL       string   `json:"QueueUrl"`
	AttributeNames []string `q:"AttributeName"`
}

type attributesOutput struct {
	Attributes map[string]string `json:",omitempty" q:"Attribute"`
}

func getQueueAttributes(c *call, in *attributesInput) (*attributesOutput, error) {
	q, err := c.fresh(in.QueueURL)
	if err != nil {
		return nil, err
	}
	all := c.attributesOf(q)
	if slices.Contains(in.AttributeNames, "All") {
		return &attributesOutput{all}, nil
	}
	out := map[string]string{}
	for _, name := range in.AttributeNames {
		if value, has := all[name]; has {
			out[name] = value
		} else if !knownAttribute(name) {
			return nil, invalidAttributeName.of("Unknown Attribute %s.", name)
		}
	}
	return &attributesOutput{out}, nil
}

// knownAttribute reports whether there is an attribute of a name that not every queue has.
func knownAttribute(name string) bool {
	_, number := numeric()[name]
	_, choice := choices()[name]
	return number || choice || slices.Contains([]string{"Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId", "FifoQueue"}, name)
}

type setInput struct {
	QueueURL   string            `json:"QueueUrl"`
	Attributes map[string]string `q:"Attribute"`
}

func setQueueAttributes(c *call, in *setInput) error {
	q, unlock, err := c.locked(in.QueueURL)
	if err != nil {
		return err
	}
	defer unlock()
	if len(in.Attributes) == 0 {
		return missingParameter.of("The request must contain the parameter Attribute.Name.")
	}
	if given := in.Attributes["FifoQueue"]; q.fifo && given == "true" {
		delete(in.Attributes, "FifoQueue") // it is one
	}
	s, err := c.settings(q.name, in.Attributes, q.fifo)
	if err != nil {
		return err
	}
	if len(s.args) > 0 {
		if err := c.client.Do(c.ctx, append([]any{"FILA.QUEUE", "ALTER", q.name}, s.args...)...).Err(); err != nil {
			return err
		}
	}
	k := q.kept
	k.Attributes = maps.Clone(k.Attributes)
	if k.Attributes == nil {
		k.Attributes = map[string]string{}
	}
	maps.Copy(k.Attributes, s.kept)
	for _, name := range s.drop {
		delete(k.Attributes, name)
	}
	k.ModifiedAt = time.Now().Unix()
	return c.keep(q.name, k)
}
