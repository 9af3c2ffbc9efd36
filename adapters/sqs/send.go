package sqs

import (
	"crypto/md5" //nolint:gosec // the digest that the API has
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Headers of a message that are not attributes of it. No attribute has a name that begins so.
const (
	headerTypes  = "AWS.Types"           // JSON: the data types of attributes that are not of type String
	headerTrace  = "AWS.TraceHeader"     // the system attribute AWSTraceHeader
	headerSender = "AWS.SenderId"        // the access key that has sent the message
	headerDedup  = "AWS.DeduplicationId" // of a FIFO queue
)

// attribute is an attribute of a message.
type attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
}

// value returns the bytes of an attribute.
func (a *attribute) value() []byte {
	if a.StringValue != nil {
		return []byte(*a.StringValue)
	}
	return a.BinaryValue
}

func (a *attribute) binary() bool { return strings.HasPrefix(a.DataType, "Binary") }

// message is what SendMessage and an entry of SendMessageBatch have in common.
type message struct {
	MessageBody             string
	DelaySeconds            *int
	MessageAttributes       map[string]attribute `q:"MessageAttribute"`
	MessageSystemAttributes map[string]attribute `q:"MessageSystemAttribute"`
	MessageDeduplicationID  string               `json:"MessageDeduplicationId"`
	MessageGroupID          string               `json:"MessageGroupId"`
}

type sendInput struct {
	QueueURL string `json:"QueueUrl"`
	message
}

// sent is the reply of a message that is stored.
type sent struct {
	ID                           string `json:"Id,omitempty"`
	MessageID                    string `json:"MessageId"`
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

func sendMessage(c *call, in *sendInput) (*sent, error) {
	q, err := c.lookUp(in.QueueURL)
	if err != nil {
		return nil, err
	}
	args, err := c.enqueue(q, &in.message)
	if err != nil {
		return nil, err
	}
	id, err := c.change(args...).Text()
	if err != nil {
		return nil, err
	}
	return in.message.sent(q, id), nil
}

// sent is the reply for a message that got an id.
func (m *message) sent(q *queue, id string) *sent {
	s := &sent{
		MessageID:                    id,
		MD5OfMessageBody:             md5Of([]byte(m.MessageBody)),
		MD5OfMessageAttributes:       md5OfAttributes(m.MessageAttributes),
		MD5OfMessageSystemAttributes: md5OfAttributes(m.MessageSystemAttributes),
	}
	if q.fifo {
		s.SequenceNumber = sequence(id)
	}
	return s
}

// sequence returns an id of a message, whose order is that of the messages, as a number of 128 bits.
func sequence(id string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil {
		return ""
	}
	return new(big.Int).SetBytes(b).String()
}

// enqueue returns the command that stores a message, or says what of it is not valid.
func (c *call) enqueue(q *queue, m *message) ([]any, error) {
	if err := m.check(q); err != nil {
		return nil, err
	}
	args := append(make([]any, 0, 8), "FILA.ENQUEUE", q.name, m.MessageBody)
	if m.MessageGroupID != "" {
		args = append(args, "KEY", m.MessageGroupID)
	}
	delay := q.defaults.delay
	if m.DelaySeconds != nil {
		delay = *m.DelaySeconds
	}
	if delay > 0 {
		args = append(args, "DELAY", int64(delay)*1000)
	}
	args, err := m.deduplicate(q, args)
	if err != nil {
		return nil, err
	}
	return c.headers(m, args)
}

// deduplicate appends the deduplication id of a message of a FIFO queue.
func (m *message) deduplicate(q *queue, args []any) ([]any, error) {
	if !q.fifo {
		return args, nil
	}
	id := m.MessageDeduplicationID
	if id == "" {
		if q.kept.Attributes["ContentBasedDeduplication"] != "true" {
			return nil, invalidParameter.of("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
		}
		sum := sha256.Sum256([]byte(m.MessageBody))
		id = hex.EncodeToString(sum[:])
	}
	args = append(args, "HEADER", headerDedup, id)
	if q.kept.Attributes["DeduplicationScope"] == "messageGroup" {
		id = m.MessageGroupID + " " + id
	}
	return append(args, "DEDUP", id), nil
}

// headers appends the attributes of a message as headers.
func (c *call) headers(m *message, args []any) ([]any, error) {
	var types map[string]string
	for _, name := range slices.Sorted(maps.Keys(m.MessageAttributes)) {
		a := m.MessageAttributes[name]
		args = append(args, "HEADER", name, a.value())
		if a.DataType != "String" {
			if types == nil {
				types = map[string]string{}
			}
			types[name] = a.DataType
		}
	}
	if len(types) > 0 {
		text, err := json.Marshal(types)
		if err != nil {
			return nil, err
		}
		args = append(args, "HEADER", headerTypes, text)
	}
	if trace, has := m.MessageSystemAttributes["AWSTraceHeader"]; has {
		args = append(args, "HEADER", headerTrace, trace.value())
	}
	if c.user != "" {
		args = append(args, "HEADER", headerSender, c.user)
	}
	return args, nil
}

// isIDName reports whether a text may be a group or a deduplication id: 1 to 128 letters, digits and punctuation.
func isIDName(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x21 || r > 0x7e })
}

// check says what of a message is not valid.
func (m *message) check(q *queue) error {
	if m.MessageBody == "" {
		return missingParameter.of("The request must contain the parameter MessageBody.")
	}
	if !validText(m.MessageBody) {
		return invalidMessageContents.of("Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	if d := m.DelaySeconds; d != nil {
		switch {
		case *d < 0 || *d > 900:
			return invalidParameter.of("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", *d)
		case q.fifo && *d > 0:
			return invalidParameter.of("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", *d)
		}
	}
	switch {
	case q.fifo && m.MessageGroupID == "":
		return missingParameter.of("The request must contain the parameter MessageGroupId.")
	case m.MessageGroupID != "" && !isIDName(m.MessageGroupID):
		return invalidParameter.of("Value %s for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.", m.MessageGroupID)
	case m.MessageDeduplicationID != "" && !q.fifo:
		return invalidParameter.of("Value %s for parameter MessageDeduplicationId is invalid. Reason: The request include parameter that is not valid for this queue type.", m.MessageDeduplicationID)
	case m.MessageDeduplicationID != "" && !isIDName(m.MessageDeduplicationID):
		return invalidParameter.of("Value %s for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length.", m.MessageDeduplicationID)
	}
	if err := m.checkAttributes(); err != nil {
		return err
	}
	if n := m.size(); n > q.defaults.size {
		return invalidParameter.of("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.defaults.size)
	}
	return nil
}

// validText reports whether a text has only the characters that XML has.
func validText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// Attributes of a message.
const (
	attributesMax = 10
	nameMax       = 256
)

var attributeNames = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (m *message) checkAttributes() error {
	if n := len(m.MessageAttributes); n > attributesMax {
		return invalidParameter.of("Number of message attributes [%d] exceeds the allowed maximum [%d].", n, attributesMax)
	}
	for _, name := range slices.Sorted(maps.Keys(m.MessageAttributes)) {
		lower := strings.ToLower(name)
		if !attributeNames.MatchString(name) || len(name) > nameMax || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
			return invalidParameter.of("The message attribute name '%s' is invalid. Attribute name can contain A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters, and does not begin with AWS. or Amazon.", name)
		}
		if err := checkAttribute(name, m.MessageAttributes[name]); err != nil {
			return err
		}
	}
	for name, a := range m.MessageSystemAttributes {
		if name != "AWSTraceHeader" || a.DataType != "String" {
			return invalidParameter.of("Message system attribute name '%s' is invalid: AWSTraceHeader, of type String, is the only one.", name)
		}
	}
	return nil
}

func checkAttribute(name string, a attribute) error {
	kind, label, _ := strings.Cut(a.DataType, ".")
	switch {
	case a.DataType == "":
		return invalidParameter.of("The message attribute '%s' must contain non-empty message attribute type.", name)
	case kind != "String" && kind != "Number" && kind != "Binary" || len(label) > nameMax:
		return invalidParameter.of("The message attribute '%s' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.", name)
	case len(a.value()) == 0:
		return invalidParameter.of("The message attribute '%s' must contain non-empty message attribute value for message attribute type '%s'.", name, a.DataType)
	case a.binary() != (a.StringValue == nil):
		return invalidParameter.of("The message attribute '%s' with type '%s' must use field '%s'.", name, a.DataType, map[bool]string{true: "Binary", false: "String"}[a.binary()])
	case !a.binary() && !validText(*a.StringValue):
		return invalidMessageContents.of("The message attribute '%s' has invalid characters.", name)
	}
	if kind == "Number" && !isNumber(*a.StringValue) {
		return invalidParameter.of("Can't cast the value of message (user) attribute '%s' to a number.", name)
	}
	return nil
}

var decimals = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// isNumber reports whether a text is a number with up to 38 digits, from 10^-128 to 10^126.
func isNumber(text string) bool {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !decimals.MatchString(text) {
		return false
	}
	mantissa := text
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa = text[:i]
	}
	digits := strings.Trim(strings.ReplaceAll(strings.TrimLeft(mantissa, "+-"), ".", ""), "0")
	return len(digits) <= 38 && (digits == "" || math.Abs(n) >= 1e-128 && math.Abs(n) <= 1e126)
}

// size is what counts towards the greatest size of a message.
func (m *message) size() int {
	n := len(m.MessageBody)
	for name, a := range m.MessageAttributes {
		n += len(name) + len(a.DataType) + len(a.value())
	}
	return n
}

func md5Of(b []byte) string {
	sum := md5.Sum(b) //nolint:gosec // the digest that the API has
	return hex.EncodeToString(sum[:])
}

// md5OfAttributes is the digest of attributes by which clients verify that they arrived: of each, in the order of their
// names, the name, the type, the kind of value and the value. Empty: there are none.
func md5OfAttributes(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	sum := md5.New() //nolint:gosec // the digest that the API has
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		digest(sum, []byte(name))
		digest(sum, []byte(a.DataType))
		transport := byte(1)
		if a.binary() {
			transport = 2
		}
		_, _ = sum.Write([]byte{transport}) // a hash takes everything
		digest(sum, a.value())
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func digest(sum hash.Hash, b []byte) {
	_, _ = sum.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
	_, _ = sum.Write(b)
}

// Batches.

const (
	batchMax   = 10 // entries
	batchIDMax = 80 // bytes of the id of an entry
)

// isBatchID reports whether a text may be the id of an entry: letters, digits, hyphens and underscores.
func isBatchID(s string) bool {
	return s != "" && len(s) <= batchIDMax && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// checkBatch checks the ids of the entries of a batch.
func checkBatch(ids []string) error {
	switch {
	case len(ids) == 0:
		return emptyBatchRequest.of("There should be at least one entry in the request.")
	case len(ids) > batchMax:
		return tooManyEntries.of("Maximum number of entries per request are %d. You have sent %d.", batchMax, len(ids))
	}
	for i, id := range ids {
		if !isBatchID(id) {
			return invalidBatchEntryID.of("A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most %d letters long.", batchIDMax)
		}
		if slices.Contains(ids[:i], id) {
			return batchIDsNotDistinct.of("Id %s repeated.", id)
		}
	}
	return nil
}

// failedEntry is the reply for an entry that failed.
type failedEntry struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

func failedAs(id string, err error) failedEntry {
	f := faulty(err)
	return failedEntry{id, f.kind.code, f.message, f.kind.side() == "Sender"}
}

type sendBatchInput struct {
	QueueURL string      `json:"QueueUrl"`
	Entries  []sendEntry `q:"SendMessageBatchRequestEntry"`
}

type sendEntry struct {
	ID string `json:"Id"`
	message
}

type sendBatchOutput struct {
	Successful []sent        `q:"SendMessageBatchResultEntry"`
	Failed     []failedEntry `json:",omitempty" q:"BatchResultErrorEntry"`
}

// sendMessageBatch sends the entries together: each is stored, or has its own error.
func sendMessageBatch(c *call, in *sendBatchInput) (*sendBatchOutput, error) {
	q, err := c.lookUp(in.QueueURL)
	if err != nil {
		return nil, err
	}
	ids, total := make([]string, len(in.Entries)), 0
	for i := range in.Entries {
		ids[i] = in.Entries[i].ID
		total += in.Entries[i].size()
	}
	if err := checkBatch(ids); err != nil {
		return nil, err
	}
	if total > messageMax {
		return nil, batchRequestTooLong.of("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", messageMax, total)
	}
	out := &sendBatchOutput{Successful: make([]sent, 0, len(ids))}
	replies := c.together(len(ids), func(i int) ([]any, error) { return c.enqueue(q, &in.Entries[i].message) })
	for i := range in.Entries {
		id, err := replies[i].text()
		if err != nil {
			out.Failed = append(out.Failed, failedAs(ids[i], err))
			continue
		}
		s := in.Entries[i].message.sent(q, id)
		s.ID = ids[i]
		out.Successful = append(out.Successful, *s)
	}
	return out, nil
}
