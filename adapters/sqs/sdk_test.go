package sqs

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	official "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/redis/go-redis/v9"
)

// sdk is a client of the official SDK for a gateway. It signs its requests.
func sdk(address, id, secret string) *official.Client {
	return official.New(official.Options{
		BaseEndpoint: &address, Region: "eu-central-1",
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, ""),
	})
}

// codeOf is the code of an error of the SDK.
func codeOf(err error) string {
	if e, is := errors.AsType[smithy.APIError](err); is {
		return e.ErrorCode()
	}
	return fmt.Sprint(err)
}

// keyed writes a file of access keys for the shared broker with the users that they are, and returns it.
func keyed(t *testing.T) string {
	t.Helper()
	return keyedAt(t, connected(t))
}

// keyedAt does so for the broker of a client.
func keyedAt(t testing.TB, client redis.UniversalClient) string {
	t.Helper()
	for user, rules := range map[string][]any{
		"gateway":  {"~*", "+@all"},
		"admin":    {"%RW~sdk*", "+@admin", "+@produce", "+@consume", "+fila.queue|info", "+fila.config|get"},
		"producer": {"%W~sdk*", "+@produce", "+fila.queue|info", "+fila.config|get"},
	} {
		if err := client.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "ON", ">" + user + "-password"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	writeFile(t, file, `[{"access_key_id":"AKIA1","secret_access_key":"s1","user":"gateway","password":"gateway-password"},
		{"access_key_id":"AKIA2","secret_access_key":"s2","user":"producer","password":"producer-password"},
		{"access_key_id":"AKIA3","secret_access_key":"s3","user":"admin","password":"admin-password"}]`)
	return file
}

func writeFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheOfficialSDKDoesTheWholeLifeCycle(t *testing.T) {
	ctx := t.Context()
	c := sdk(serve(t, Config{KeysFile: keyed(t)}), "AKIA1", "s1")
	made, err := c.CreateQueue(ctx, &official.CreateQueueInput{QueueName: aws.String("sdk"), Attributes: map[string]string{"VisibilityTimeout": "60"}, Tags: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	url := made.QueueUrl
	sent, err := c.SendMessageBatch(ctx, &official.SendMessageBatchInput{QueueUrl: url, Entries: []types.SendMessageBatchRequestEntry{
		{Id: aws.String("a"), MessageBody: aws.String("one"), MessageGroupId: aws.String("tenant")},
		{Id: aws.String("b"), MessageBody: aws.String("two"), MessageAttributes: map[string]types.MessageAttributeValue{
			"n": {DataType: aws.String("Number"), StringValue: aws.String("7")}, "b": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		}},
	}})
	if err != nil || len(sent.Successful) != 2 { // the SDK has verified the digests
		t.Fatal(sent, err)
	}
	got, err := c.ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}})
	if err != nil || len(got.Messages) != 2 {
		t.Fatal(got, err)
	}
	for _, m := range got.Messages {
		if m.Attributes["SenderId"] != "AKIA1" || m.Attributes["ApproximateReceiveCount"] != "1" {
			t.Error(m.Attributes)
		}
		if _, err := c.ChangeMessageVisibility(ctx, &official.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 100}); err != nil {
			t.Error(err)
		}
		if _, err := c.DeleteMessage(ctx, &official.DeleteMessageInput{QueueUrl: url, ReceiptHandle: m.ReceiptHandle}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.PurgeQueue(ctx, &official.PurgeQueueInput{QueueUrl: url}); err != nil {
		t.Error(err)
	}
	if _, err := c.DeleteQueue(ctx, &official.DeleteQueueInput{QueueUrl: url}); err != nil {
		t.Error(err)
	}
	var none *types.QueueDoesNotExist
	if _, err := c.GetQueueUrl(ctx, &official.GetQueueUrlInput{QueueName: aws.String("sdk")}); !errors.As(err, &none) {
		t.Errorf("the URL of a queue that is deleted: %v", err)
	}
}

func TestARefusedConnectionIsNoSuccess(t *testing.T) {
	ctx, admin := t.Context(), connected(t)
	c := sdk(serve(t, Config{KeysFile: keyed(t)}), "AKIA1", "s1")
	made, err := c.CreateQueue(ctx, &official.CreateQueueInput{QueueName: aws.String("refused")})
	if err != nil {
		t.Fatal(err)
	}
	url := made.QueueUrl
	if _, err := c.SendMessage(ctx, &official.SendMessageInput{QueueUrl: url, MessageBody: aws.String("one")}); err != nil {
		t.Fatal(err)
	}
	got, err := c.ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})
	if err != nil || len(got.Messages) != 1 {
		t.Fatal(got, err)
	}
	receipt := got.Messages[0].ReceiptHandle
	password := func(to string) {
		t.Helper()
		if err := admin.Do(ctx, "ACL", "SETUSER", "gateway", "resetpass", ">"+to).Err(); err != nil {
			t.Fatal(err)
		}
	}
	password("another")
	t.Cleanup(func() {
		_ = admin.Do(context.Background(), "ACL", "SETUSER", "gateway", "resetpass", ">gateway-password").Err()
	})
	if err := admin.Do(ctx, "CLIENT", "KILL", "USER", "gateway").Err(); err != nil {
		t.Fatal(err)
	}
	const want = "AccessDenied"
	deleted, err := c.DeleteMessageBatch(ctx, &official.DeleteMessageBatchInput{QueueUrl: url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("a"), ReceiptHandle: receipt}}})
	if codeOf(err) != want && (err != nil || len(deleted.Failed) != 1 || *deleted.Failed[0].Code != want) {
		t.Errorf("DeleteMessageBatch: %+v, %v, want %s", deleted, err, want)
	}
	if _, err := c.ChangeMessageVisibility(ctx, &official.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: receipt, VisibilityTimeout: 100}); codeOf(err) != want {
		t.Errorf("ChangeMessageVisibility: %v, want %s", err, want)
	}
	if _, err := c.SendMessage(ctx, &official.SendMessageInput{QueueUrl: url, MessageBody: aws.String("two")}); codeOf(err) != want {
		t.Errorf("SendMessage: %v, want %s", err, want)
	}
}

func TestRequestsAreVerified(t *testing.T) {
	ctx := t.Context()
	file := keyed(t)
	address := serve(t, Config{KeysFile: file})
	list := func(id, secret string) string {
		_, err := sdk(address, id, secret).ListQueues(ctx, &official.ListQueuesInput{})
		if err == nil {
			return ""
		}
		if strings.Contains(err.Error(), "s1") || strings.Contains(err.Error(), "password") {
			t.Errorf("a secret is shown: %v", err)
		}
		return codeOf(err)
	}
	if got := list("AKIA1", "s1"); got != "" {
		t.Error(got)
	}
	if got := list("AKIA1", "s2"); got != "SignatureDoesNotMatch" {
		t.Error(got)
	}
	if got := list("AKIA9", "s1"); got != "InvalidClientTokenId" {
		t.Error(got)
	}
	if _, failed := ask(t, address, "ListQueues", nil); failed != "MissingAuthenticationToken" {
		t.Error(failed)
	}
	if _, err := sdk(strings.Replace(address, "127.0.0.1", "LocalHost", 1), "AKIA1", "s1").ListQueues(ctx, &official.ListQueuesInput{}); err != nil {
		t.Errorf("a host with capital letters, as it is signed: %v", err)
	}
	tampered := sdk(address, "AKIA1", "s1")
	_, err := tampered.ListQueues(ctx, &official.ListQueuesInput{}, func(o *official.Options) {
		o.HTTPClient = changing(func(r *http.Request) { r.URL.Path = "/other" })
	})
	if codeOf(err) != "SignatureDoesNotMatch" {
		t.Errorf("a request that was changed: %v", err)
	}
	writeFile(t, file, `[{"access_key_id":"AKIA9","secret_access_key":"s9","user":"gateway","password":"gateway-password"}]`)
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	until(t, "the file is read again", func() bool { return list("AKIA9", "s9") == "" })
	if got := list("AKIA1", "s1"); got != "InvalidClientTokenId" {
		t.Error(got)
	}
}

func TestTheActionIsSigned(t *testing.T) {
	address := serve(t, Config{KeysFile: keyed(t)})
	for _, fields := range []map[string]string{
		{}, {"X-Amz-Target": "AmazonSQS.ListQueues"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range fields {
			r.Header.Set(name, value)
		}
		empty := sha256.Sum256(nil)
		if err := v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: "AKIA1", SecretAccessKey: "s1"}, r, hex.EncodeToString(empty[:]), "sqs", "us-east-1", time.Now()); err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || (reply.StatusCode == http.StatusOK) != (len(fields) > 0) {
			t.Errorf("signed with %v: %s %s %v", fields, reply.Status, text, err)
		}
	}
}

// changing is an HTTP client that changes what is sent.
type changing func(*http.Request)

func (c changing) Do(r *http.Request) (*http.Response, error) {
	c(r)
	return http.DefaultClient.Do(r)
}

func TestAnAccessKeyHasTheRightsOfItsUser(t *testing.T) {
	ctx := t.Context()
	address := serve(t, Config{KeysFile: keyed(t)})
	owner, producer := sdk(address, "AKIA1", "s1"), sdk(address, "AKIA2", "s2")
	made, err := owner.CreateQueue(ctx, &official.CreateQueueInput{QueueName: aws.String("sdk-rights")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.SendMessage(ctx, &official.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: aws.String("a")}); err != nil {
		t.Error(err)
	}
	if _, err := producer.ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: made.QueueUrl}); codeOf(err) != "AccessDenied" {
		t.Errorf("a receive without the right: %v", err)
	}
	if _, err := producer.CreateQueue(ctx, &official.CreateQueueInput{QueueName: aws.String("sdk-other")}); codeOf(err) != "AccessDenied" {
		t.Errorf("a queue without the right: %v", err)
	}
}

func TestAnAdministratorNeedsNoOtherRights(t *testing.T) {
	ctx, admin := t.Context(), sdk(serve(t, Config{KeysFile: keyed(t)}), "AKIA3", "s3")
	for range 2 {
		made, err := admin.CreateQueue(ctx, &official.CreateQueueInput{QueueName: aws.String("sdk-administered"), Attributes: map[string]string{"DelaySeconds": "7"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.DeleteQueue(ctx, &official.DeleteQueueInput{QueueUrl: made.QueueUrl}); err != nil {
			t.Error(err)
		}
		if _, err := admin.GetQueueUrl(ctx, &official.GetQueueUrlInput{QueueName: aws.String("sdk-administered")}); codeOf(err) != "AWS.SimpleQueueService.NonExistentQueue" {
			t.Error(err)
		}
	}
}

func TestKeysFilesThatAreNotValid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	for text, want := range map[string]string{
		"x": "not a JSON array", "{}": "not a JSON array",
		`[{"access_key_id":"a"}]`: "entry 1",
		`[{"access_key_id":"a","secret_access_key":"s3cret"},{"access_key_id":"a","secret_access_key":"b"}]`: "twice",
	} {
		writeFile(t, file, text)
		if _, err := New(Config{Broker: options("127.0.0.1:1"), KeysFile: file}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := New(Config{Broker: options("127.0.0.1:1"), Account: "1"}); err == nil {
		t.Error("an account of one digit")
	}
}

func TestAClientThatIsGoneTakesNoMessage(t *testing.T) {
	address := serve(t, Config{})
	ask(t, address, "CreateQueue", map[string]any{"QueueName": "gone"})
	url := address + "/000000000000/gone"
	client := connected(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := sdk(address, "a", "b").ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
		left <- err
	}()
	waits := func() bool {
		list, err := client.Do(t.Context(), "FILA.STATS", "gone").Result()
		fields, err := fieldsOf(list, err)
		return err == nil && number(fields["waiters"]) > 0
	}
	until(t, "the receive waits", waits)
	leave()
	if err := <-left; err == nil {
		t.Error("the receive has returned without its client")
	}
	until(t, "it waits no more", func() bool { return !waits() })
	ask(t, address, "SendMessage", map[string]any{"QueueUrl": url, "MessageBody": "a"})
	if out, _ := ask(t, address, "ReceiveMessage", map[string]any{"QueueUrl": url, "WaitTimeSeconds": 20}); at(out, "Messages.0.Body") != "a" {
		t.Error(out)
	}
}

func TestTheEndOfAConnectionIsSeenBehindTLS(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: s.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		} else if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	client, err := tls.Dial("tcp", l.Addr().String(), s.Client().Transport.(*http.Transport).TLSClientConfig) //nolint:noctx // to this process
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	conn := <-accepted
	defer conn.Close()
	if hungUp(conn) {
		t.Error("the client is there")
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the client is gone", func() bool { return hungUp(conn) })
}

func TestAnActionThatPanicsFailsItsRequestOnly(t *testing.T) {
	var failed []error
	g, err := New(Config{Broker: options("127.0.0.1:1"), Failed: func(err error) { failed = append(failed, err) }})
	if err != nil {
		t.Fatal(err)
	}
	g.acts["ListQueues"] = func(*call, func(any) error) (any, error) { panic("at the disco") }
	address := serveGateway(t, g)
	for range 2 {
		if _, code := ask(t, address, "ListQueues", nil); code != "InternalFailure" {
			t.Error(code)
		}
	}
	if len(failed) != 2 || !strings.Contains(failed[0].Error(), "at the disco") {
		t.Error(failed)
	}
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	address := strings.TrimPrefix(serve(t, Config{}), "http://")
	for request, want := range map[string]string{
		"nonsense\r\n\r\n": "400 Bad Request",
		"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: " + strings.Repeat("x", headerMax) + "\r\n\r\n":                                              "413 Request Entity Too Large",
		"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: x\r\nContent-Length: " + fmt.Sprint(3*bodyMax) + "\r\n\r\n" + strings.Repeat("x", headerMax): "413 Request Entity Too Large",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
		if err != nil || line != "HTTP/1.1 "+want+"\r\n" {
			t.Errorf("%.60q: %q, %v", request, line, err)
		}
	}
}

func TestMemoryIsForWhatHasArrived(t *testing.T) {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(serve(t, Config{}), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: x\r\nContent-Length: %d\r\n\r\n{", bodyMax); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "HTTP/1.1 400 Bad Request\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > bodyMax/4 {
		t.Errorf("%d bytes for a body of which one has arrived", took)
	}
}

func TestWithoutABrokerClientsAreAskedToTryAgain(t *testing.T) {
	addr, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, Config{Broker: options(addr)})
	if _, failed := ask(t, address, "ListQueues", nil); failed != "ServiceUnavailable" {
		t.Error(failed)
	}
}

// TestANoisyGroupDoesNotDelayAQuietOne counts how many messages are delivered before those of a quiet tenant, which sends after
// a noisy one: in a queue with groups, and in one without.
func TestANoisyGroupDoesNotDelayAQuietOne(t *testing.T) {
	const noisy, quiet = 300, 20
	ctx := t.Context()
	c := sdk(serve(t, Config{}), "a", "b")
	delivered := func(queue string, grouped bool) (before []int) {
		made, err := c.CreateQueue(ctx, &official.CreateQueueInput{QueueName: &queue})
		if err != nil {
			t.Fatal(err)
		}
		send := func(tenant string, count int) {
			for range count / batchMax {
				in := &official.SendMessageBatchInput{QueueUrl: made.QueueUrl}
				for i := range batchMax {
					e := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: &tenant}
					if grouped {
						e.MessageGroupId = &tenant
					}
					in.Entries = append(in.Entries, e)
				}
				if out, err := c.SendMessageBatch(ctx, in); err != nil || len(out.Failed) > 0 {
					t.Fatal(out, err)
				}
			}
		}
		send("noisy", noisy)
		send("quiet", quiet)
		for n := 0; n < noisy+quiet; {
			got, err := c.ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: made.QueueUrl, MaxNumberOfMessages: batchMax})
			if err != nil || len(got.Messages) == 0 {
				t.Fatal(len(got.Messages), err)
			}
			for _, m := range got.Messages {
				if *m.Body == "quiet" {
					before = append(before, n)
				}
				n++
			}
		}
		return before
	}
	fair, plain := delivered("noisy-groups", true), delivered("noisy-plain", false)
	t.Logf("messages before the first and the last of the quiet tenant: %d and %d with groups, %d and %d without", fair[0], fair[quiet-1], plain[0], plain[quiet-1])
	for i := range quiet {
		if fair[i] > 2*i+1 { // every second message is the quiet tenant's
			t.Errorf("%d messages were delivered before number %d of the quiet tenant", fair[i], i+1)
		}
		if plain[i] != noisy+i {
			t.Errorf("without groups, %d messages were delivered before number %d of the quiet tenant: the test shows nothing", plain[i], i+1)
		}
	}
}

// fleet is two processes of the gateway, which are killed, and what was sent and received through them.
type fleet struct {
	clients [2]atomic.Pointer[official.Client]
	kill    [2]func()
	sent    atomic.Int64 // messages whose sending was acknowledged
	missing sync.Map     // of these, what was not received yet, by body
	got     sync.Map     // what was received
}

// start starts a gateway, again with another address.
func (f *fleet) start(t *testing.T, i int, broker string) {
	t.Helper()
	url, _, kill := process(t, broker, "")
	f.kill[i] = kill
	options := sdk(url, "a", "b").Options()
	options.RetryMaxAttempts = 1 // the test repeats what has failed
	f.clients[i].Store(official.New(options))
}

// send sends the entries of a batch until each is acknowledged. One that was not may be stored all the same.
func (f *fleet) send(t *testing.T, i int, batch *official.SendMessageBatchInput) {
	t.Helper()
	until(t, "a batch is stored", func() bool {
		out, err := f.clients[i].Load().SendMessageBatch(t.Context(), batch)
		if err != nil {
			return false
		}
		stored := map[string]bool{}
		for _, s := range out.Successful {
			stored[*s.Id] = true
		}
		batch.Entries = slices.DeleteFunc(batch.Entries, func(e types.SendMessageBatchRequestEntry) bool {
			if stored[*e.Id] {
				f.missing.Store(*e.MessageBody, true)
				f.sent.Add(1)
			}
			return stored[*e.Id]
		})
		return len(batch.Entries) == 0
	})
}

// receive receives and deletes once. Whatever fails comes back after its visibility timeout.
func (f *fleet) receive(ctx context.Context, i int, url *string) {
	c := f.clients[i].Load()
	out, err := c.ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: batchMax, WaitTimeSeconds: 1})
	if err != nil || len(out.Messages) == 0 {
		return
	}
	in := &official.DeleteMessageBatchInput{QueueUrl: url}
	for j, m := range out.Messages {
		f.got.Store(*m.Body, true)
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(j)), ReceiptHandle: m.ReceiptHandle})
	}
	_, _ = c.DeleteMessageBatch(ctx, in)
}

// complete reports whether all that was acknowledged has been received.
func (f *fleet) complete() bool {
	left := 0
	f.missing.Range(func(body, _ any) bool {
		if _, has := f.got.Load(body); has {
			f.missing.Delete(body)
		} else {
			left++
		}
		return true
	})
	return left == 0
}

// TestNothingIsLostUnderKills sends and receives through two gateways while the broker and the gateways are killed.
func TestNothingIsLostUnderKills(t *testing.T) {
	kills, messages := 1, 400
	if !testing.Short() {
		kills, messages = 5, 6000
	}
	b := &broker{dir: t.TempDir()}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.kill() })
	f := &fleet{}
	for i := range f.clients {
		f.start(t, i, b.addr)
	}
	made, err := f.clients[0].Load().CreateQueue(t.Context(), &official.CreateQueueInput{QueueName: aws.String("kills"), Attributes: map[string]string{"VisibilityTimeout": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	var producers, consumers sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			for i := 0; i < messages/4; i += batchMax {
				batch := &official.SendMessageBatchInput{QueueUrl: made.QueueUrl}
				for j := range batchMax {
					batch.Entries = append(batch.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(j)), MessageBody: aws.String(fmt.Sprintf("%d-%d", p, i+j)), MessageGroupId: aws.String(fmt.Sprint("g", j%3))})
				}
				f.send(t, p%2, batch)
			}
		})
		consumers.Go(func() {
			for t.Context().Err() == nil && (f.sent.Load() < int64(messages) || !f.complete()) {
				f.receive(t.Context(), p%2, made.QueueUrl)
			}
		})
	}
	for k := range kills {
		until(t, "messages are sent", func() bool { return f.sent.Load() >= int64((k+1)*messages/(kills+2)) })
		f.kill[k%2]()
		f.start(t, k%2, b.addr)
		b.kill()
		if err := b.start(); err != nil {
			t.Fatal(err)
		}
	}
	producers.Wait()
	until(t, "every message is received", f.complete)
	consumers.Wait()
}

func TestErrorsOfTheBroker(t *testing.T) {
	for text, want := range map[string]string{
		"NOQUEUE no queue": "QueueDoesNotExist", "PAUSED x": "RequestThrottled", "MAXDEPTH x": "OverLimit",
		"LOADING x": "ServiceUnavailable", "MISCONF x": "ServiceUnavailable", "OOM x": "ServiceUnavailable", "NOPERM x": "AccessDeniedException",
	} {
		if f := faulty(refusal(text)); f.kind.name != want {
			t.Errorf("%s is %s, want %s", text, f.kind.name, want)
		}
	}
	if f := faulty(errors.New("dial tcp 10.1.2.3:5555")); f.kind.name != "ServiceUnavailable" || strings.Contains(f.message, "10.1.2.3") {
		t.Errorf("%v", f)
	}
}

// refusal is an error that the broker has replied.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

var _ redis.Error = refusal("")
