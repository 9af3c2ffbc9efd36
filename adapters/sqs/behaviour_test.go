package sqs

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// ask sends a request of the JSON protocol and returns the reply, and the name of the error; "": none.
func ask(t *testing.T, address, action string, in map[string]any) (out map[string]any, failed string) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return askText(t, address, action, string(body))
}

func askText(t *testing.T, address, action, body string) (out map[string]any, failed string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || json.Unmarshal(text, &out) != nil {
		t.Fatalf("%s has replied %q, %v", action, text, err)
	}
	if reply.StatusCode == http.StatusOK {
		return out, ""
	}
	name, _ := out["__type"].(string)
	_, name, _ = strings.Cut(name, "#")
	if message, _ := out["message"].(string); message == "" || name == "" || reply.Header.Get("X-Amzn-Query-Error") == "" {
		t.Fatalf("%s has failed without saying why: %q", action, text)
	}
	return out, name
}

// script is a queue under test: its name, and what was received of it.
type script struct {
	t       *testing.T
	address string
	queue   string
	handles []string // of what was received, in that order
	bodies  []string
	ids     []string
	last    map[string]any // the last reply
}

// do sends a request about the queue. $1 is the first receipt handle, and so on. want is the error, "" for none.
func (s *script) do(action, in, want string) {
	s.t.Helper()
	in = strings.ReplaceAll(in, "$q", s.queue)
	for i, h := range s.handles {
		in = strings.ReplaceAll(in, fmt.Sprint("$", i+1), h)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte("{"+in+"}"), &fields); err != nil {
		s.t.Fatalf("%s: %v", in, err)
	}
	if _, has := fields["QueueUrl"]; !has {
		fields["QueueUrl"] = s.address + "/000000000000/" + s.queue
	}
	out, failed := ask(s.t, s.address, action, fields)
	if failed != want {
		s.t.Fatalf("%s {%s}: error %q %v, want %q", action, shorten(in), failed, out["message"], want)
	}
	s.last = out
	if list, has := out["Messages"].([]any); has {
		for _, item := range list {
			m := item.(map[string]any)
			s.handles = append(s.handles, m["ReceiptHandle"].(string))
			s.bodies = append(s.bodies, m["Body"].(string))
		}
	}
	if id, has := out["MessageId"].(string); has {
		s.ids = append(s.ids, id)
	}
}

func shorten(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// got verifies what the last reply has at a path such as Messages.0.Body; <nil> is what is not there.
func (s *script) got(path, want string) {
	s.t.Helper()
	if is := fmt.Sprint(at(s.last, path)); is != want {
		s.t.Fatalf("%s is %s, want %s: %v", path, is, want, s.last)
	}
}

func at(v any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i := int(part[0] - '0')
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// behaviours are what the documentation of SQS says, one row each: the attributes of the queue, whether it is a FIFO
// queue, and what happens.
func behaviours() map[string]struct {
	attributes string
	fifo       bool
	does       func(s *script)
} {
	type row = struct {
		attributes string
		fifo       bool
		does       func(s *script)
	}
	standard := func(does func(s *script)) row { return row{does: does} }
	fifo := func(does func(s *script)) row { return row{fifo: true, does: does} }
	return map[string]row{
		"a message is received as it was sent": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a <b> & \"c\" \u00e9 \ud83d\ude00"`, "")
			s.got("MD5OfMessageBody", md5Of([]byte("a <b> & \"c\" é 😀")))
			s.do("ReceiveMessage", ``, "")
			s.got("Messages.0.Body", "a <b> & \"c\" é 😀")
			s.got("Messages.0.MessageId", s.ids[0])
			s.got("Messages.0.MD5OfBody", md5Of([]byte("a <b> & \"c\" é 😀")))
		}),
		"an empty queue answers without Messages": standard(func(s *script) {
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
		}),
		"a received message is not visible": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
		}),
		"a deleted message is gone, and deleting it again succeeds": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("GetQueueAttributes", `"AttributeNames":["All"]`, "")
			s.got("Attributes.ApproximateNumberOfMessages", "0")
			s.got("Attributes.ApproximateNumberOfMessagesNotVisible", "0")
		}),
		"a message comes back after its visibility timeout, with its count": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", `"VisibilityTimeout":0`, "")
			s.do("ReceiveMessage", `"WaitTimeSeconds":20,"AttributeNames":["ApproximateReceiveCount"]`, "")
			s.got("Messages.0.Attributes.ApproximateReceiveCount", "2")
		}),
		"changing the visibility to 0 makes a message visible at once": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":0`, "")
			s.do("ReceiveMessage", `"MessageSystemAttributeNames":["All"]`, "")
			s.got("Messages.0.Attributes.ApproximateReceiveCount", "2")
		}),
		"the visibility of a message can be changed while it is in flight": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":43200`, "")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":10`, "MessageNotInflight")
		}),
		"a visibility timeout is at most 12 hours": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", `"VisibilityTimeout":43201`, "InvalidParameterValue")
			s.do("ReceiveMessage", `"VisibilityTimeout":-1`, "InvalidParameterValue")
			s.do("ReceiveMessage", ``, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":43201`, "InvalidParameterValue")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1"`, "MissingParameter")
		}),
		"a receive returns 1 to 10 messages": standard(func(s *script) {
			for range 12 {
				s.do("SendMessage", `"MessageBody":"a"`, "")
			}
			s.do("ReceiveMessage", `"MaxNumberOfMessages":0`, "InvalidParameterValue")
			s.do("ReceiveMessage", `"MaxNumberOfMessages":11`, "InvalidParameterValue")
			s.do("ReceiveMessage", ``, "")
			if len(s.handles) != 1 {
				s.t.Fatalf("%d messages, want 1", len(s.handles))
			}
			s.do("ReceiveMessage", `"MaxNumberOfMessages":10`, "")
			if len(s.handles) != 11 {
				s.t.Fatalf("%d messages, want 11", len(s.handles))
			}
		}),
		"a receive waits at most 20 seconds":                standard(func(s *script) { s.do("ReceiveMessage", `"WaitTimeSeconds":21`, "InvalidParameterValue") }),
		"a body is required":                                standard(func(s *script) { s.do("SendMessage", ``, "MissingParameter") }),
		"an empty body is refused":                          standard(func(s *script) { s.do("SendMessage", `"MessageBody":""`, "MissingParameter") }),
		"a control character in a body is refused":          standard(func(s *script) { s.do("SendMessage", `"MessageBody":"a\u0001"`, "InvalidMessageContents") }),
		"tab, line feed and carriage return are characters": standard(func(s *script) { s.do("SendMessage", `"MessageBody":"\t\n\r"`, "") }),
		"#xFFFE in a body is refused":                       standard(func(s *script) { s.do("SendMessage", `"MessageBody":"\ufffe"`, "InvalidMessageContents") }),
		"a message has at most 1 MiB": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"`+strings.Repeat("a", messageMax)+`"`, "")
			s.do("SendMessage", `"MessageBody":"`+strings.Repeat("a", messageMax+1)+`"`, "InvalidParameterValue")
		}),
		"attributes count toward the size of a message": {attributes: `"MaximumMessageSize":"1024"`, does: func(s *script) {
			s.do("SendMessage", `"MessageBody":"`+strings.Repeat("a", 1024-8)+`","MessageAttributes":{"n":{"DataType":"String","StringValue":"v"}}`, "")
			s.do("SendMessage", `"MessageBody":"`+strings.Repeat("a", 1024-7)+`","MessageAttributes":{"n":{"DataType":"String","StringValue":"v"}}`, "InvalidParameterValue")
		}},
		"a delayed message is counted and not received": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","DelaySeconds":900`, "")
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
			s.do("GetQueueAttributes", `"AttributeNames":["ApproximateNumberOfMessagesDelayed"]`, "")
			s.got("Attributes.ApproximateNumberOfMessagesDelayed", "1")
		}),
		"a delay is at most 15 minutes": standard(func(s *script) { s.do("SendMessage", `"MessageBody":"a","DelaySeconds":901`, "InvalidParameterValue") }),
		"the delay of a queue is that of its messages, unless they have their own": {attributes: `"DelaySeconds":"900"`, does: func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("SendMessage", `"MessageBody":"b","DelaySeconds":0`, "")
			s.do("ReceiveMessage", `"MaxNumberOfMessages":10`, "")
			s.got("Messages.0.Body", "b")
			s.got("Messages.1", "<nil>")
		}},
		"attributes have types, and arrive when they are asked for": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"s":{"DataType":"String","StringValue":"v"},"n":{"DataType":"Number.int","StringValue":"-5.5"},"b":{"DataType":"Binary","BinaryValue":"AAH/"}}`, "")
			s.do("ReceiveMessage", `"MessageAttributeNames":["All"],"VisibilityTimeout":0`, "")
			s.got("Messages.0.MessageAttributes.s.StringValue", "v")
			s.got("Messages.0.MessageAttributes.n.DataType", "Number.int")
			s.got("Messages.0.MessageAttributes.n.StringValue", "-5.5")
			s.got("Messages.0.MessageAttributes.b.BinaryValue", "AAH/")
			s.do("ReceiveMessage", `"WaitTimeSeconds":20`, "")
			s.got("Messages.0.MessageAttributes", "<nil>")
			s.got("Messages.0.MD5OfMessageAttributes", "<nil>")
		}),
		"attributes are asked for by name and by prefix": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"ab.c":{"DataType":"String","StringValue":"1"},"ab.d":{"DataType":"String","StringValue":"2"},"x":{"DataType":"String","StringValue":"3"}}`, "")
			s.do("ReceiveMessage", `"MessageAttributeNames":["ab.*","y"]`, "")
			s.got("Messages.0.MessageAttributes.ab.c", "<nil>") // a path has no name with a point
			if n := len(at(s.last, "Messages.0.MessageAttributes").(map[string]any)); n != 2 {
				s.t.Fatalf("%d attributes, want 2", n)
			}
		}),
		"a message has at most ten attributes": standard(func(s *script) {
			var list []string
			for i := range 11 {
				list = append(list, fmt.Sprintf(`"a%d":{"DataType":"String","StringValue":"v"}`, i))
			}
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{`+strings.Join(list[:10], ",")+`}`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{`+strings.Join(list, ",")+`}`, "InvalidParameterValue")
		}),
		"the name of an attribute does not begin with AWS. or Amazon.": standard(func(s *script) {
			for _, name := range []string{"AWS.x", "amazon.x", ".x", "x.", "a..b", "a b", ""} {
				s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"`+name+`":{"DataType":"String","StringValue":"v"}}`, "InvalidParameterValue")
			}
		}),
		"an attribute needs a type that there is": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"StringValue":"v"}}`, "InvalidParameterValue")
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"Float","StringValue":"v"}}`, "InvalidParameterValue")
		}),
		"an attribute needs a value of its type": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"String"}}`, "InvalidParameterValue")
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"String","StringValue":""}}`, "InvalidParameterValue")
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"Binary","StringValue":"v"}}`, "InvalidParameterValue")
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"Number","StringValue":"v"}}`, "InvalidParameterValue")
		}),
		"AWSTraceHeader is the one system attribute of a send": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageSystemAttributes":{"AWSTraceHeader":{"DataType":"String","StringValue":"Root=1"}}`, "")
			s.got("MD5OfMessageAttributes", "<nil>")
			s.do("SendMessage", `"MessageBody":"a","MessageSystemAttributes":{"Other":{"DataType":"String","StringValue":"x"}}`, "InvalidParameterValue")
			s.do("ReceiveMessage", `"AttributeNames":["AWSTraceHeader"],"MessageAttributeNames":["All"]`, "")
			s.got("Messages.0.Attributes.AWSTraceHeader", "Root=1")
			s.got("Messages.0.MessageAttributes", "<nil>")
		}),
		"a batch has one to ten entries": standard(func(s *script) {
			var list []string
			for i := range 11 {
				list = append(list, fmt.Sprintf(`{"Id":"e%d","MessageBody":"a"}`, i))
			}
			s.do("SendMessageBatch", `"Entries":[]`, "EmptyBatchRequest")
			s.do("SendMessageBatch", `"Entries":[`+strings.Join(list, ",")+`]`, "TooManyEntriesInBatchRequest")
			s.do("SendMessageBatch", `"Entries":[`+strings.Join(list[:10], ",")+`]`, "")
			s.got("Successful.9.Id", "e9")
			s.got("Failed", "<nil>")
		}),
		"the ids of a batch are distinct": standard(func(s *script) {
			s.do("SendMessageBatch", `"Entries":[{"Id":"a","MessageBody":"x"},{"Id":"a","MessageBody":"y"}]`, "BatchEntryIdsNotDistinct")
		}),
		"the id of an entry has letters, digits, hyphens and underscores": standard(func(s *script) {
			s.do("SendMessageBatch", `"Entries":[{"Id":"a b","MessageBody":"x"}]`, "InvalidBatchEntryId")
			s.do("SendMessageBatch", `"Entries":[{"Id":"`+strings.Repeat("a", 81)+`","MessageBody":"x"}]`, "InvalidBatchEntryId")
			s.do("SendMessageBatch", `"Entries":[{"MessageBody":"x"}]`, "InvalidBatchEntryId")
		}),
		"a batch fails in part": standard(func(s *script) {
			s.do("SendMessageBatch", `"Entries":[{"Id":"a","MessageBody":"x"},{"Id":"b","MessageBody":""},{"Id":"c","MessageBody":"y","DelaySeconds":901}]`, "")
			s.got("Successful.0.Id", "a")
			s.got("Successful.1", "<nil>")
			s.got("Failed.0.Id", "b")
			s.got("Failed.0.SenderFault", "true")
			s.got("Failed.1.Code", "InvalidParameterValue")
		}),
		"a batch has at most 1 MiB": standard(func(s *script) {
			half := strings.Repeat("a", messageMax/2+1)
			s.do("SendMessageBatch", `"Entries":[{"Id":"a","MessageBody":"`+half+`"},{"Id":"b","MessageBody":"`+half+`"}]`, "BatchRequestTooLong")
		}),
		"messages are deleted in batches": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("SendMessage", `"MessageBody":"b"`, "")
			s.do("ReceiveMessage", `"MaxNumberOfMessages":10`, "")
			s.do("DeleteMessageBatch", `"Entries":[{"Id":"a","ReceiptHandle":"$1"},{"Id":"b","ReceiptHandle":"$2"},{"Id":"c","ReceiptHandle":"%"}]`, "")
			s.got("Successful.1.Id", "b")
			s.got("Failed.0.Id", "c")
			s.got("Failed.0.Code", "ReceiptHandleIsInvalid")
			s.do("DeleteMessageBatch", `"Entries":[]`, "EmptyBatchRequest")
		}),
		"visibility is changed in batches": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("SendMessage", `"MessageBody":"b"`, "")
			s.do("ReceiveMessage", `"MaxNumberOfMessages":10`, "")
			s.do("ChangeMessageVisibilityBatch", `"Entries":[{"Id":"a","ReceiptHandle":"$1","VisibilityTimeout":0},{"Id":"b","ReceiptHandle":"$2","VisibilityTimeout":43201}]`, "")
			s.got("Successful.0.Id", "a")
			s.got("Failed.0.Code", "InvalidParameterValue")
		}),
		"the visibility of what is deleted cannot be changed in a batch": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("ChangeMessageVisibilityBatch", `"Entries":[{"Id":"a","ReceiptHandle":"$1","VisibilityTimeout":1}]`, "")
			s.got("Failed.0.Code", "ReceiptHandleIsInvalid")
			s.got("Failed.0.SenderFault", "true")
		}),
		"a receive that waits is woken by a send": standard(func(s *script) {
			got := make(chan map[string]any)
			go func() {
				out, _ := ask(s.t, s.address, "ReceiveMessage", map[string]any{"QueueUrl": s.address + "/0/" + s.queue, "WaitTimeSeconds": 20})
				got <- out
			}()
			client := connected(s.t)
			until(s.t, "the receive waits", func() bool {
				fields, err := fieldsOf(client.Do(s.t.Context(), "FILA.STATS", s.queue).Result())
				return err == nil && number(fields["waiters"]) > 0
			})
			s.do("SendMessage", `"MessageBody":"a"`, "")
			if body := at(<-got, "Messages.0.Body"); body != "a" {
				s.t.Fatal(body)
			}
		}),
		"each receive has a receipt handle of its own, and the newest deletes": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":0`, "")
			s.do("ReceiveMessage", ``, "")
			s.got("Messages.0.MessageId", s.ids[0])
			if s.handles[0] == s.handles[1] {
				s.t.Fatal(s.handles)
			}
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("GetQueueAttributes", `"AttributeNames":["All"]`, "")
			s.got("Attributes.ApproximateNumberOfMessagesNotVisible", "1")
			s.do("DeleteMessage", `"ReceiptHandle":"$2"`, "")
			s.do("GetQueueAttributes", `"AttributeNames":["All"]`, "")
			s.got("Attributes.ApproximateNumberOfMessagesNotVisible", "0")
		}),
		"times are milliseconds since 1970": standard(func(s *script) {
			before := time.Now().UnixMilli()
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", `"AttributeNames":["SentTimestamp","ApproximateFirstReceiveTimestamp"]`, "")
			for _, name := range []string{"SentTimestamp", "ApproximateFirstReceiveTimestamp"} {
				if n := number(at(s.last, "Messages.0.Attributes."+name)); n < before-1000 || n > time.Now().UnixMilli()+1000 {
					s.t.Fatalf("%s is %d, sent at %d", name, n, before)
				}
			}
		}),
		"a message is gone after the retention of its queue": standard(func(s *script) {
			s.do("SetQueueAttributes", `"Attributes":{"MessageRetentionPeriod":"60"}`, "")
			// The shortest retention of SQS is a minute: the broker has it as its TTL, which is shortened further.
			client := connected(s.t)
			if fields, err := fieldsOf(client.Do(s.t.Context(), "FILA.QUEUE", "INFO", s.queue).Result()); err != nil || number(fields["ttl_ms"]) != 60_000 {
				s.t.Fatal(fields["ttl_ms"], err)
			}
			if err := client.Do(s.t.Context(), "FILA.QUEUE", "ALTER", s.queue, "TTL", 50).Err(); err != nil {
				s.t.Fatal(err)
			}
			s.do("SendMessage", `"MessageBody":"a"`, "")
			until(s.t, "it is gone", func() bool {
				s.do("GetQueueAttributes", `"AttributeNames":["ApproximateNumberOfMessages"]`, "")
				return at(s.last, "Attributes.ApproximateNumberOfMessages") == "0"
			})
		}),
		"a system attribute does not count toward the size of a message": {attributes: `"MaximumMessageSize":"1024"`, does: func(s *script) {
			s.do("SendMessage", `"MessageBody":"`+strings.Repeat("a", 1024)+`","MessageSystemAttributes":{"AWSTraceHeader":{"DataType":"String","StringValue":"Root=1"}}`, "")
			if s.last["MD5OfMessageSystemAttributes"] == nil {
				s.t.Fatal(s.last)
			}
		}},
		"the name of an attribute has at most 256 characters": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"`+strings.Repeat("n", 256)+`":{"DataType":"String","StringValue":"v"}}`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"`+strings.Repeat("n", 257)+`":{"DataType":"String","StringValue":"v"}}`, "InvalidParameterValue")
		}),
		"a control character in an attribute is refused": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"String","StringValue":"\u0001"}}`, "InvalidMessageContents")
		}),
		"a number has up to 38 digits, from 10^-128 to 10^126": standard(func(s *script) {
			for _, value := range []string{"0", "-0.0", "+7", ".5", "5.", "1e126", "-1E126", "1e-128", strings.Repeat("9", 38), "0." + strings.Repeat("0", 50) + "1", "1" + strings.Repeat("0", 100)} {
				s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"Number","StringValue":"`+value+`"}}`, "")
			}
			for _, value := range []string{"NaN", "Infinity", "-inf", "0x10", "1_000", "1e", "e1", ".", "", " 1", "1e127", "1e-129", "-1e9999999999", strings.Repeat("9", 39)} {
				s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"x":{"DataType":"Number","StringValue":"`+value+`"}}`, "InvalidParameterValue")
			}
		}),
		"a group has at most 128 characters": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"`+strings.Repeat("g", 128)+`"`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"`+strings.Repeat("g", 129)+`"`, "InvalidParameterValue")
		}),
		"a batch of which nothing is stored succeeds": standard(func(s *script) {
			s.do("SendMessageBatch", `"Entries":[{"Id":"a","MessageBody":""},{"Id":"b","MessageBody":"\u0001"}]`, "")
			s.got("Successful", "[]")
			s.got("Failed.0.Id", "a")
			s.got("Failed.1.Code", "InvalidMessageContents")
		}),
		"names of queues are case-sensitive": standard(func(s *script) {
			s.do("GetQueueUrl", `"QueueName":"`+strings.ToUpper(s.queue)+`"`, "QueueDoesNotExist")
		}),
		"a batch of a FIFO queue is stored in its order, each deduplication id once": fifo(func(s *script) {
			var list []string
			for i := range 9 {
				list = append(list, fmt.Sprintf(`{"Id":"e%d","MessageBody":"%d","MessageGroupId":"g","MessageDeduplicationId":"%d"}`, i, i, i))
			}
			list = append(list, `{"Id":"again","MessageBody":"x","MessageGroupId":"g","MessageDeduplicationId":"3"}`)
			s.do("SendMessageBatch", `"Entries":[`+strings.Join(list, ",")+`]`, "")
			if at(s.last, "Successful.3.MessageId") != at(s.last, "Successful.9.MessageId") {
				s.t.Fatal(s.last)
			}
			for range 9 {
				s.do("ReceiveMessage", `"WaitTimeSeconds":20,"ReceiveRequestAttemptId":"r1"`, "")
				s.do("DeleteMessage", `"ReceiptHandle":"`+s.handles[len(s.handles)-1]+`"`, "")
			}
			if got := strings.Join(s.bodies, ""); got != "012345678" {
				s.t.Fatal(got)
			}
		}),
		"a queue says which queues may have it as their dead-letter queue": standard(func(s *script) {
			for _, dead := range []string{"all", "none", "some"} {
				s.do("CreateQueue", `"QueueName":"$q-`+dead+`"`, "")
			}
			allow := func(queue, policy, want string) {
				s.do("SetQueueAttributes", `"QueueUrl":"http://h/0/$q-`+queue+`","Attributes":{"RedriveAllowPolicy":"`+strings.ReplaceAll(policy, `"`, `\"`)+`"}`, want)
			}
			use := func(queue, want string) {
				s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:$q-`+queue+`\",\"maxReceiveCount\":1}"}`, want)
			}
			allow("all", `{"redrivePermission":"allowAll"}`, "")
			allow("none", `{"redrivePermission":"denyAll"}`, "")
			allow("some", `{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:other"]}`, "")
			use("all", "")
			use("none", "InvalidParameterValue")
			use("some", "InvalidParameterValue")
			s.do("CreateQueue", `"QueueName":"$q-new","Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:$q-none\",\"maxReceiveCount\":1}"}`, "InvalidParameterValue")
			allow("some", `{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:other","arn:aws:sqs:us-east-1:000000000000:$q"]}`, "")
			use("some", "")
			for _, wrong := range []string{`x`, `{}`, `{"redrivePermission":"maybe"}`, `{"redrivePermission":"byQueue"}`, `{"redrivePermission":"byQueue","sourceQueueArns":["x"]}`, `{"redrivePermission":"allowAll","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:a"]}`} {
				allow("all", wrong, "InvalidAttributeValue")
			}
		}),
		"a receipt handle that is none is refused": standard(func(s *script) {
			s.do("DeleteMessage", `"ReceiptHandle":"%%%"`, "ReceiptHandleIsInvalid")
			s.do("DeleteMessage", `"ReceiptHandle":"abcd"`, "ReceiptHandleIsInvalid")
			s.do("DeleteMessage", ``, "MissingParameter")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"abcd","VisibilityTimeout":1`, "ReceiptHandleIsInvalid")
		}),
		"a queue that does not exist": standard(func(s *script) {
			const none = `"QueueUrl":"http://h/0/none"`
			s.do("SendMessage", none+`,"MessageBody":"a"`, "QueueDoesNotExist")
			s.do("ReceiveMessage", none, "QueueDoesNotExist")
			s.do("DeleteQueue", none, "QueueDoesNotExist")
			s.do("PurgeQueue", none, "QueueDoesNotExist")
			s.do("GetQueueAttributes", none, "QueueDoesNotExist")
			s.do("GetQueueUrl", `"QueueName":"none"`, "QueueDoesNotExist")
			s.do("SendMessage", `"QueueUrl":"","MessageBody":"a"`, "MissingParameter")
		}),
		"the URL of a queue is found by its name": standard(func(s *script) {
			s.do("GetQueueUrl", `"QueueName":"$q"`, "")
			s.got("QueueUrl", s.address+"/000000000000/"+s.queue)
		}),
		"creating a queue again with the same attributes returns it": {attributes: `"DelaySeconds":"5","VisibilityTimeout":"7"`, does: func(s *script) {
			s.do("CreateQueue", `"QueueName":"$q","Attributes":{"DelaySeconds":"5"}`, "")
			s.do("CreateQueue", `"QueueName":"$q"`, "")
			s.got("QueueUrl", s.address+"/000000000000/"+s.queue)
			s.do("CreateQueue", `"QueueName":"$q","Attributes":{"VisibilityTimeout":"8"}`, "QueueNameExists")
		}},
		"the name of a queue has letters, digits, hyphens and underscores": standard(func(s *script) {
			for _, name := range []string{"a b", "a.b", "a/b", "ä", strings.Repeat("a", 81)} {
				s.do("CreateQueue", `"QueueName":"`+name+`"`, "InvalidParameterValue")
			}
			s.do("CreateQueue", ``, "MissingParameter")
		}),
		"attributes have bounds": standard(func(s *script) {
			for name, values := range map[string][]string{
				"DelaySeconds": {"-1", "901", "x"}, "MaximumMessageSize": {"1023", "1048577"}, "MessageRetentionPeriod": {"59", "1209601"},
				"ReceiveMessageWaitTimeSeconds": {"-1", "21"}, "VisibilityTimeout": {"-1", "43201"}, "SqsManagedSseEnabled": {"yes"},
			} {
				for _, value := range values {
					s.do("SetQueueAttributes", `"Attributes":{"`+name+`":"`+value+`"}`, "InvalidAttributeValue")
				}
			}
			s.do("SetQueueAttributes", `"Attributes":{"Colour":"red"}`, "InvalidAttributeName")
			s.do("GetQueueAttributes", `"AttributeNames":["Colour"]`, "InvalidAttributeName")
			s.do("SetQueueAttributes", ``, "MissingParameter")
		}),
		"attributes that were set are shown": standard(func(s *script) {
			s.do("SetQueueAttributes", `"Attributes":{"DelaySeconds":"3","MaximumMessageSize":"2048","MessageRetentionPeriod":"60","ReceiveMessageWaitTimeSeconds":"4","VisibilityTimeout":"0"}`, "")
			s.do("GetQueueAttributes", `"AttributeNames":["All"]`, "")
			for name, want := range map[string]string{"DelaySeconds": "3", "MaximumMessageSize": "2048", "MessageRetentionPeriod": "60", "ReceiveMessageWaitTimeSeconds": "4", "VisibilityTimeout": "0", "QueueArn": "arn:aws:sqs:us-east-1:000000000000:" + s.queue} {
				s.got("Attributes."+name, want)
			}
		}),
		"a queue has the defaults of SQS": standard(func(s *script) {
			s.do("GetQueueAttributes", `"AttributeNames":["All"]`, "")
			for name, want := range map[string]string{"DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0", "VisibilityTimeout": "30", "RedrivePolicy": "<nil>", "FifoQueue": "<nil>"} {
				s.got("Attributes."+name, want)
			}
			s.do("GetQueueAttributes", ``, "")
			s.got("Attributes", "<nil>")
		}),
		"the wait of a queue is that of its receives": {attributes: `"ReceiveMessageWaitTimeSeconds":"1"`, does: func(s *script) {
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
		}},
		"after maxReceiveCount receives a message is moved": standard(func(s *script) {
			s.do("CreateQueue", `"QueueName":"$q-dead"`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:$q-dead\",\"maxReceiveCount\":\"2\"}"}`, "")
			s.do("GetQueueAttributes", `"AttributeNames":["RedrivePolicy"]`, "")
			if p := fmt.Sprint(at(s.last, "Attributes.RedrivePolicy")); !strings.Contains(p, s.queue+"-dead") || !strings.Contains(p, `"maxReceiveCount":2`) {
				s.t.Fatal(p)
			}
			s.do("SendMessage", `"MessageBody":"a","MessageAttributes":{"n":{"DataType":"Number","StringValue":"1"}}`, "")
			for range 2 {
				s.do("ReceiveMessage", `"WaitTimeSeconds":20`, "")
				s.do("ChangeMessageVisibility", `"ReceiptHandle":"`+s.handles[len(s.handles)-1]+`","VisibilityTimeout":0`, "")
			}
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
			s.do("ReceiveMessage", `"QueueUrl":"http://h/0/$q-dead","MessageAttributeNames":["All"]`, "")
			s.got("Messages.0.Body", "a")
			s.got("Messages.0.MessageId", s.ids[0])
			s.got("Messages.0.MessageAttributes.n.DataType", "Number")
			s.do("GetQueueAttributes", `"QueueUrl":"http://h/0/$q-dead","AttributeNames":["All"]`, "")
			s.got("Attributes.ApproximateNumberOfMessages", "0")
			s.got("Attributes.ApproximateNumberOfMessagesNotVisible", "1")
			s.do("ListDeadLetterSourceQueues", `"QueueUrl":"http://h/0/$q-dead"`, "")
			s.got("queueUrls.0", s.address+"/000000000000/"+s.queue)
		}),
		"a redrive policy names a queue that exists, and 1 to 1000 receives": standard(func(s *script) {
			for _, p := range []string{`{}`, `x`, `{\"deadLetterTargetArn\":\"arn:aws:sqs:r:a:none\",\"maxReceiveCount\":1}`, `{\"deadLetterTargetArn\":\"arn:aws:sqs:r:a:$q\",\"maxReceiveCount\":0}`, `{\"deadLetterTargetArn\":\"arn:aws:sqs:r:a:$q\",\"maxReceiveCount\":1001}`, `{\"deadLetterTargetArn\":\"$q\",\"maxReceiveCount\":1}`} {
				s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"`+p+`"}`, "InvalidParameterValue")
			}
		}),
		"a redrive policy can be taken away": standard(func(s *script) {
			s.do("CreateQueue", `"QueueName":"$q-dead"`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:$q-dead\",\"maxReceiveCount\":1}"}`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":""}`, "")
			s.do("GetQueueAttributes", `"AttributeNames":["RedrivePolicy"]`, "")
			s.got("Attributes", "<nil>")
		}),
		"dead messages are moved back by a task": standard(func(s *script) {
			s.do("CreateQueue", `"QueueName":"$q-dead"`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:$q-dead\",\"maxReceiveCount\":1}"}`, "")
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":0`, "")
			s.do("GetQueueAttributes", `"QueueUrl":"http://h/0/$q-dead","AttributeNames":["ApproximateNumberOfMessages"]`, "")
			s.got("Attributes.ApproximateNumberOfMessages", "1")
			s.do("StartMessageMoveTask", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q-dead","MaxNumberOfMessagesPerSecond":500`, "")
			s.do("ReceiveMessage", `"WaitTimeSeconds":20`, "")
			s.got("Messages.0.Body", "a")
			s.do("ListMessageMoveTasks", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q-dead"`, "")
			s.got("Results.0.Status", "COMPLETED")
			s.got("Results.0.ApproximateNumberOfMessagesMoved", "1")
			s.got("Results.0.ApproximateNumberOfMessagesToMove", "1")
			s.got("Results.0.MaxNumberOfMessagesPerSecond", "500")
		}),
		"a task moves from a dead-letter queue alone": standard(func(s *script) {
			s.do("StartMessageMoveTask", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q"`, "InvalidParameterValue")
			s.do("StartMessageMoveTask", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:none"`, "ResourceNotFoundException")
			s.do("StartMessageMoveTask", ``, "MissingParameter")
			s.do("CancelMessageMoveTask", `"TaskHandle":"x"`, "InvalidParameterValue")
			s.do("CancelMessageMoveTask", ``, "MissingParameter")
		}),
		"a running task can be cancelled": standard(func(s *script) {
			s.do("CreateQueue", `"QueueName":"$q-dead"`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:$q-dead\",\"maxReceiveCount\":1}"}`, "")
			for range 30 { // one a second: the task runs for half a minute
				s.do("SendMessage", `"MessageBody":"a"`, "")
				s.do("ReceiveMessage", ``, "")
				s.do("ChangeMessageVisibility", `"ReceiptHandle":"`+s.handles[len(s.handles)-1]+`","VisibilityTimeout":0`, "")
			}
			s.do("StartMessageMoveTask", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q-dead","MaxNumberOfMessagesPerSecond":1`, "")
			handle := fmt.Sprint(s.last["TaskHandle"])
			s.do("StartMessageMoveTask", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q-dead"`, "UnsupportedOperation")
			s.do("ListMessageMoveTasks", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q-dead"`, "")
			s.got("Results.0.Status", "RUNNING")
			s.got("Results.0.TaskHandle", handle)
			s.do("CancelMessageMoveTask", `"TaskHandle":"`+handle+`"`, "")
			s.do("ListMessageMoveTasks", `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:$q-dead"`, "")
			s.got("Results.0.Status", "CANCELLED")
			s.do("CancelMessageMoveTask", `"TaskHandle":"`+handle+`"`, "ResourceNotFoundException")
		}),
		"a purged queue is empty": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("PurgeQueue", ``, "")
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
		}),
		"a queue with messages can be deleted, and made again": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a"`, "")
			s.do("TagQueue", `"Tags":{"a":"1"}`, "")
			s.do("DeleteQueue", ``, "")
			s.do("ReceiveMessage", ``, "QueueDoesNotExist")
			s.do("CreateQueue", `"QueueName":"$q"`, "")
			s.do("ListQueueTags", ``, "")
			s.got("Tags", "<nil>")
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
		}),
		"a queue has tags": standard(func(s *script) {
			s.do("TagQueue", `"Tags":{"team":"a","cost":"b"}`, "")
			s.do("TagQueue", `"Tags":{"cost":"c"}`, "")
			s.do("UntagQueue", `"TagKeys":["team","other"]`, "")
			s.do("ListQueueTags", ``, "")
			s.got("Tags.cost", "c")
			s.got("Tags.team", "<nil>")
		}),
		"a queue has at most 50 tags": standard(func(s *script) {
			var list []string
			for i := range 51 {
				list = append(list, fmt.Sprintf(`"t%d":"v"`, i))
			}
			s.do("TagQueue", `"Tags":{`+strings.Join(list, ",")+`}`, "InvalidParameterValue")
			s.do("TagQueue", `"Tags":{`+strings.Join(list[:50], ",")+`}`, "")
		}),
		"queues are listed by prefix, page by page": standard(func(s *script) {
			for _, name := range []string{"1", "2", "3"} {
				s.do("CreateQueue", `"QueueName":"$q-p`+name+`"`, "")
			}
			s.do("ListQueues", `"QueueNamePrefix":"$q-p","MaxResults":2`, "")
			s.got("QueueUrls.1", s.address+"/000000000000/"+s.queue+"-p2")
			s.got("QueueUrls.2", "<nil>")
			s.do("ListQueues", `"QueueNamePrefix":"$q-p","MaxResults":2,"NextToken":"`+fmt.Sprint(s.last["NextToken"])+`"`, "")
			s.got("QueueUrls.0", s.address+"/000000000000/"+s.queue+"-p3")
			s.got("NextToken", "<nil>")
			s.do("ListQueues", `"QueueNamePrefix":"$q-none"`, "")
			s.got("QueueUrls", "<nil>")
			s.do("ListQueues", `"MaxResults":1001`, "InvalidParameterValue")
		}),
		"MessageGroupId of a standard queue is the fairness key": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"tenant-1"`, "")
			s.do("SendMessage", `"MessageBody":"b","MessageGroupId":"no spaces"`, "InvalidParameterValue")
			s.do("ReceiveMessage", `"AttributeNames":["All"]`, "")
			s.got("Messages.0.Attributes.MessageGroupId", "tenant-1")
			s.got("Messages.0.Attributes.SequenceNumber", "<nil>")
		}),
		"a quiet group is not delayed by a noisy one": standard(func(s *script) {
			for range 20 {
				s.do("SendMessage", `"MessageBody":"noisy","MessageGroupId":"noisy"`, "")
			}
			s.do("SendMessage", `"MessageBody":"quiet","MessageGroupId":"quiet"`, "")
			s.do("ReceiveMessage", `"MaxNumberOfMessages":3`, "")
			if !strings.Contains(strings.Join(s.bodies, " "), "quiet") {
				s.t.Fatal(s.bodies)
			}
		}),
		"a standard queue has no deduplication ids": standard(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageDeduplicationId":"d"`, "InvalidParameterValue")
		}),
		"a standard queue has no attributes of FIFO queues": standard(func(s *script) {
			s.do("SetQueueAttributes", `"Attributes":{"ContentBasedDeduplication":"true"}`, "InvalidAttributeName")
			s.do("CreateQueue", `"QueueName":"$q-x","Attributes":{"FifoQueue":"true"}`, "InvalidParameterValue")
		}),
		"a FIFO queue needs FifoQueue": fifo(func(s *script) {
			s.do("CreateQueue", `"QueueName":"x-$q"`, "InvalidParameterValue")
			s.do("CreateQueue", `"QueueName":"x-$q","Attributes":{"FifoQueue":"false"}`, "InvalidParameterValue")
			s.do("GetQueueAttributes", `"AttributeNames":["All"]`, "")
			s.got("Attributes.FifoQueue", "true")
			s.got("Attributes.ContentBasedDeduplication", "false")
			s.do("SetQueueAttributes", `"Attributes":{"FifoQueue":"false"}`, "InvalidAttributeValue")
		}),
		"a FIFO queue needs groups": fifo(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageDeduplicationId":"1"`, "MissingParameter")
		}),
		"a FIFO queue needs deduplication ids": fifo(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g"`, "InvalidParameterValue")
		}),
		"a message of a FIFO queue has no delay of its own": fifo(func(s *script) {
			s.do("SetQueueAttributes", `"Attributes":{"DelaySeconds":"5"}`, "UnsupportedOperation") // SQS has it
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1","DelaySeconds":1`, "InvalidParameterValue")
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1","DelaySeconds":0`, "")
		}),
		"a second message with a deduplication id is not stored": fifo(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1"`, "")
			s.do("SendMessage", `"MessageBody":"b","MessageGroupId":"g","MessageDeduplicationId":"1"`, "")
			if s.ids[0] != s.ids[1] {
				s.t.Fatal(s.ids)
			}
			s.do("ReceiveMessage", `"AttributeNames":["All"]`, "")
			s.got("Messages.0.Attributes.MessageDeduplicationId", "1")
			s.got("Messages.0.Attributes.MessageGroupId", "g")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("SendMessage", `"MessageBody":"c","MessageGroupId":"g","MessageDeduplicationId":"1"`, "") // a deleted one counts
			s.do("ReceiveMessage", ``, "")
			s.got("Messages", "<nil>")
		}),
		"the content may be the deduplication id": {fifo: true, attributes: `"ContentBasedDeduplication":"true"`, does: func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g"`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"h"`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"h","MessageDeduplicationId":"1"`, "")
			if s.ids[0] != s.ids[1] || s.ids[0] == s.ids[2] {
				s.t.Fatal(s.ids)
			}
		}},
		"deduplication may be by group": {fifo: true, attributes: `"DeduplicationScope":"messageGroup","FifoThroughputLimit":"perMessageGroupId"`, does: func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1"`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"h","MessageDeduplicationId":"1"`, "")
			if s.ids[0] == s.ids[1] {
				s.t.Fatal(s.ids)
			}
		}},
		"a group of a FIFO queue is delivered in order, one at a time": fifo(func(s *script) {
			for i, body := range []string{"1", "2", "3"} {
				s.do("SendMessage", fmt.Sprintf(`"MessageBody":%q,"MessageGroupId":"g","MessageDeduplicationId":"%d"`, body, i), "")
			}
			s.do("ReceiveMessage", ``, "")
			s.do("ReceiveMessage", ``, "") // the group is in flight
			s.got("Messages", "<nil>")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":0`, "")
			for range 3 {
				s.do("ReceiveMessage", `"WaitTimeSeconds":20`, "")
				s.do("DeleteMessage", `"ReceiptHandle":"`+s.handles[len(s.handles)-1]+`"`, "")
			}
			if got := strings.Join(s.bodies, ""); got != "1123" {
				s.t.Fatal(got)
			}
		}),
		"groups of a FIFO queue do not wait for each other": fifo(func(s *script) {
			s.do("SendMessage", `"MessageBody":"g","MessageGroupId":"g","MessageDeduplicationId":"1"`, "")
			s.do("SendMessage", `"MessageBody":"h","MessageGroupId":"h","MessageDeduplicationId":"2"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ReceiveMessage", ``, "")
			if len(s.bodies) != 2 {
				s.t.Fatal(s.bodies)
			}
		}),
		"sequence numbers of a FIFO queue grow": fifo(func(s *script) {
			var last string
			for i := range 3 {
				s.do("SendMessage", fmt.Sprintf(`"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"%d"`, i), "")
				n := fmt.Sprint(s.last["SequenceNumber"])
				if len(n) < len(last) || len(n) == len(last) && n <= last {
					s.t.Fatalf("%s after %s", n, last)
				}
				last = n
			}
		}),
		"a receipt handle of a FIFO queue expires": fifo(func(s *script) {
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "")
			s.do("DeleteMessage", `"ReceiptHandle":"$1"`, "InvalidParameterValue")
		}),
		"the dead-letter queue of a FIFO queue is one": fifo(func(s *script) {
			s.do("CreateQueue", `"QueueName":"plain-dead"`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:plain-dead\",\"maxReceiveCount\":1}"}`, "InvalidParameterValue")
			s.do("CreateQueue", `"QueueName":"dead-$q","Attributes":{"FifoQueue":"true"}`, "")
			s.do("SetQueueAttributes", `"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dead-$q\",\"maxReceiveCount\":1}"}`, "")
			s.do("SendMessage", `"MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1"`, "")
			s.do("ReceiveMessage", ``, "")
			s.do("ChangeMessageVisibility", `"ReceiptHandle":"$1","VisibilityTimeout":0`, "")
			s.do("ReceiveMessage", `"QueueUrl":"http://h/0/dead-$q","AttributeNames":["All"],"WaitTimeSeconds":20`, "")
			s.got("Messages.0.Attributes.MessageGroupId", "g")
		}),
		"permissions are refused with what to do": standard(func(s *script) {
			s.do("AddPermission", `"Label":"x"`, "UnsupportedOperation")
			s.do("SetQueueAttributes", `"Attributes":{"Policy":"{}"}`, "UnsupportedOperation")
			s.do("SetQueueAttributes", `"Attributes":{"KmsMasterKeyId":"x"}`, "UnsupportedOperation")
		}),
		"an action that there is not": standard(func(s *script) { s.do("Frobnicate", ``, "InvalidAction") }),
		"a parameter of the wrong type": standard(func(s *script) {
			s.do("ReceiveMessage", `"MaxNumberOfMessages":"many"`, "SerializationException")
			for _, body := range []string{"{", "[]", `{"MessageBody":"\ud800"}`, "{\"MessageBody\":\"\xff\"}"} {
				if _, failed := askText(s.t, s.address, "SendMessage", body); failed != "SerializationException" {
					s.t.Fatal(failed)
				}
			}
		}),
		"a body of more than the greatest batch is refused": standard(func(s *script) {
			if _, failed := askText(s.t, s.address, "SendMessage", `{"MessageBody":"`+strings.Repeat("a", bodyMax)+`"}`); failed != "RequestTooLarge" {
				s.t.Fatal(failed)
			}
		}),
	}
}

func TestTheGatewayBehavesAsTheDocumentationSays(t *testing.T) {
	address := serve(t, Config{})
	n := 0
	for name, b := range behaviours() {
		n++
		queue := fmt.Sprintf("b%d", n)
		attributes := b.attributes
		if b.fifo {
			queue += fifoSuffix
			attributes = strings.Trim(`"FifoQueue":"true",`+attributes, ",")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{t: t, address: address, queue: queue}
			s.do("CreateQueue", `"QueueName":"$q","Attributes":{`+attributes+`}`, "")
			b.does(s)
		})
	}
	if n < 60 {
		t.Errorf("%d behaviours, at least 60", n)
	}
}

// queryReply is a reply of the Query protocol, with what the tests look at.
type queryReply struct {
	QueueURL string `xml:"CreateQueueResult>QueueUrl"`
	Messages []struct {
		Body, ReceiptHandle string
		Attributes          []struct{ Name, Value string } `xml:"Attribute"`
		Raw                 []byte                         `xml:",innerxml"`
	} `xml:"ReceiveMessageResult>Message"`
	Sent []struct {
		ID string `xml:"Id"`
	} `xml:"SendMessageBatchResult>SendMessageBatchResultEntry"`
	Failed []struct {
		ID   string `xml:"Id"`
		Code string
	} `xml:"SendMessageBatchResult>BatchResultErrorEntry"`
	Tags      []struct{ Key, Value string } `xml:"ListQueueTagsResult>Tag"`
	RequestID string                        `xml:"ResponseMetadata>RequestId"`
	Code      string                        `xml:"Error>Code"`
	Type      string                        `xml:"Error>Type"`
}

func query(t *testing.T, address string, form url.Values) queryReply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out queryReply
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func TestTheQueryProtocolSaysTheSame(t *testing.T) {
	address := serve(t, Config{})
	made := query(t, address, url.Values{"Action": {"CreateQueue"}, "QueueName": {"query"}, "Attribute.1.Name": {"VisibilityTimeout"}, "Attribute.1.Value": {"7"}, "Tag.1.Key": {"a"}, "Tag.1.Value": {"<b>"}})
	if made.QueueURL != address+"/000000000000/query" || made.RequestID == "" {
		t.Fatalf("%+v", made)
	}
	if tags := query(t, made.QueueURL, url.Values{"Action": {"ListQueueTags"}}); len(tags.Tags) != 1 || tags.Tags[0].Value != "<b>" {
		t.Fatalf("%+v", tags)
	}
	sent := query(t, made.QueueURL, url.Values{
		"Action":                            {"SendMessageBatch"},
		"SendMessageBatchRequestEntry.1.Id": {"a"},
		"SendMessageBatchRequestEntry.1.MessageBody":                          {"x & <y>"},
		"SendMessageBatchRequestEntry.1.MessageAttribute.1.Name":              {"b"},
		"SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType":    {"Binary"},
		"SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.BinaryValue": {"AAH/"},
		"SendMessageBatchRequestEntry.2.Id":                                   {"b"},
		"SendMessageBatchRequestEntry.2.MessageBody":                          {""},
	})
	if len(sent.Sent) != 1 || sent.Sent[0].ID != "a" || len(sent.Failed) != 1 || sent.Failed[0].Code != "MissingParameter" {
		t.Fatalf("%+v", sent)
	}
	got := query(t, address, url.Values{"Action": {"ReceiveMessage"}, "QueueUrl": {made.QueueURL}, "AttributeName.1": {"ApproximateReceiveCount"}, "MessageAttributeName.1": {"b"}})
	if len(got.Messages) != 1 || got.Messages[0].Body != "x & <y>" || len(got.Messages[0].Attributes) != 1 || got.Messages[0].Attributes[0].Value != "1" {
		t.Fatalf("%+v", got)
	}
	if raw := string(got.Messages[0].Raw); !strings.Contains(raw, "<MessageAttribute><Name>b</Name><Value><DataType>Binary</DataType><BinaryValue>AAH/</BinaryValue></Value></MessageAttribute>") {
		t.Fatal(raw)
	}
	if done := query(t, made.QueueURL, url.Values{"Action": {"DeleteMessage"}, "ReceiptHandle": {got.Messages[0].ReceiptHandle}}); done.RequestID == "" || done.Code != "" {
		t.Fatalf("%+v", done)
	}
	for code, form := range map[string]url.Values{
		"AWS.SimpleQueueService.NonExistentQueue": {"Action": {"ReceiveMessage"}, "QueueUrl": {address + "/0/none"}},
		"InvalidParameterValue":                   {"Action": {"ReceiveMessage"}, "QueueUrl": {made.QueueURL}, "MaxNumberOfMessages": {"x"}},
		"InvalidAction":                           {"Action": {"None"}},
	} {
		if f := query(t, address, form); f.Code != code || f.Type != "Sender" {
			t.Errorf("%v: %+v", form, f)
		}
	}
}
