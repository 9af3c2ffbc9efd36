package sqs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	official "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redis/go-redis/v9"
)

const (
	benchClients = 16
	benchRounds  = 40 // batches of ten of each client, in one turn
)

// BenchmarkBatchesOfTen compares four ways to send, receive and delete batches of ten messages with 16 clients: RESP by
// go-redis, where ten FILA.ENQUEUE are pipelined; the gateway, asked by a client that writes requests to a connection and reads
// replies of a known length, as one in C may; asked by a client of net/http and encoding/json; and by the official SDK, which
// signs. They take turns, and each has a queue of its own. Each client compares the body of each message that it receives. It
// reports messages a second, what part of RESP the gateway has, and microseconds of CPU time a message, of the broker, the
// gateway and the clients.
//
//	TEST_BROKER=../../bin/fila go test -run '^$' -bench BatchesOfTen -benchtime 10x .
func BenchmarkBatchesOfTen(b *testing.B) {
	br := &broker{dir: b.TempDir()}
	if err := br.start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(br.kill)
	open, openPid, _ := process(b, br.addr, "")
	client := redis.NewUniversalClient(options(br.addr))
	b.Cleanup(func() { _ = client.Close() })
	signed, signedPid, _ := process(b, br.addr, keyedAt(b, client))
	body := strings.Repeat("x", 100)
	ways := []struct {
		name    string
		gateway int // the id of its process; 0: none
		client  func() batches
	}{
		{"resp", 0, func() batches { return overRESP(client, body) }},
		{"bare", openPid, func() batches { return overConnection(b, open, body) }},
		{"http", openPid, func() batches { return overHTTP(open, body) }},
		{"sdk", signedPid, func() batches { return overSDK(signed, body) }},
	}
	took, used := map[string]time.Duration{}, map[string]float64{}
	clients := map[string][]batches{}
	for _, w := range ways {
		if err := client.Do(b.Context(), "FILA.QUEUE", "CREATE", w.name, "NODLQ", "MAXATTEMPTS", 0).Err(); err != nil {
			b.Fatal(err)
		}
		for range benchClients {
			clients[w.name] = append(clients[w.name], w.client())
		}
	}
	rounds := 0
	for b.Loop() {
		rounds++
		for _, w := range ways {
			processes := map[string]int{"broker": br.cmd.Process.Pid, "gateway": w.gateway, "client": os.Getpid()}
			for of, pid := range processes {
				used[w.name+"-"+of] -= cpuTime(b, pid)
			}
			began := time.Now()
			var group sync.WaitGroup
			for _, do := range clients[w.name] {
				group.Go(func() {
					for range benchRounds {
						if err := do(b.Context(), w.name); err != nil {
							b.Error(w.name, err)
							return
						}
					}
				})
			}
			group.Wait()
			took[w.name] += time.Since(began)
			for of, pid := range processes {
				used[w.name+"-"+of] += cpuTime(b, pid)
			}
		}
	}
	messages := float64(rounds * benchClients * benchRounds * batchMax)
	for _, w := range ways {
		b.ReportMetric(messages/took[w.name].Seconds(), w.name+"-msg/s")
		b.ReportMetric(took["resp"].Seconds()/took[w.name].Seconds(), w.name+"/resp")
	}
	for of, us := range used {
		b.ReportMetric(us/messages, of+"-µs/msg")
	}
}

// cpuTime is the CPU time that a process has used, in microseconds; 0 for the process 0.
func cpuTime(b *testing.B, pid int) float64 {
	b.Helper()
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])) // the name may have spaces
	const user, system, tick = 12, 13, 10_000
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		ticks += number(field)
	}
	return float64(ticks * tick)
}

// batches sends, receives and deletes a batch of ten messages of a queue.
type batches = func(ctx context.Context, queue string) error

func overRESP(client redis.UniversalClient, body string) batches {
	return func(ctx context.Context, queue string) error {
		p := client.Pipeline()
		for range batchMax {
			p.Do(ctx, "FILA.ENQUEUE", queue, body, "KEY", "tenant")
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
		reply, err := client.Do(ctx, "FILA.LEASE", queue, "COUNT", batchMax).Slice()
		if err != nil {
			return err
		}
		args := []any{"FILA.ACK", queue}
		for _, item := range reply {
			l := leaseOf(item)
			if l.payload != body {
				return fmt.Errorf("received %q", l.payload)
			}
			args = append(args, l.receipt)
		}
		if len(reply) == 0 {
			return nil
		}
		return client.Do(ctx, args...).Err()
	}
}

// overConnection is a client that has one connection, and no more of HTTP and JSON than it needs for the replies of the gateway.
func overConnection(b *testing.B, url, body string) batches {
	b.Helper()
	host := strings.TrimPrefix(url, "http://")
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", host)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	var request, reply []byte
	// post returns the body of a reply, valid until the next request.
	post := func(action string, parts ...string) ([]byte, error) {
		length := 0
		for _, part := range parts {
			length += len(part)
		}
		request = append(append(append(append(request[:0], "POST / HTTP/1.1\r\nHost: "...), host...), "\r\nX-Amz-Target: AmazonSQS."...), action...)
		request = strconv.AppendInt(append(request, "\r\nContent-Length: "...), int64(length), 10)
		request = append(request, "\r\n\r\n"...)
		for _, part := range parts {
			request = append(request, part...)
		}
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		length, status := 0, ""
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return nil, err
			}
			line = bytes.TrimRight(line, "\r\n")
			if len(line) == 0 {
				break
			}
			if status == "" {
				status = string(line)
			} else if n, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
				length, _ = strconv.Atoi(string(n)) // 0 is refused below
			}
		}
		if status != "HTTP/1.1 200 OK" || length == 0 {
			return nil, fmt.Errorf("%s: %s, %d bytes", action, status, length)
		}
		reply = slices.Grow(reply[:0], length)[:length]
		_, err := io.ReadFull(in, reply)
		return reply, err
	}
	return func(_ context.Context, queue string) error {
		to := `{"QueueUrl":"` + url + `/000000000000/` + queue + `",`
		send, remove := make([]string, 0, 3*batchMax+2), make([]string, 0, 3*batchMax+2)
		begin := to + `"Entries":[{"Id":"`
		for i := range batchMax {
			send = append(send, begin, strconv.Itoa(i), `","MessageBody":"`+body+`","MessageGroupId":"tenant"}`)
			begin = `,{"Id":"`
		}
		if _, err := post("SendMessageBatch", append(send, "]}")...); err != nil {
			return err
		}
		got, err := post("ReceiveMessage", to, `"MaxNumberOfMessages":10}`)
		if err != nil {
			return err
		}
		begin = to + `"Entries":[{"Id":"`
		for i := 0; ; i++ {
			text, rest, more := textOf(got, "ReceiptHandle")
			if !more {
				break
			}
			remove = append(remove, begin, strconv.Itoa(i), `","ReceiptHandle":"`+string(text)+`"}`)
			begin = `,{"Id":"`
			if text, rest, _ = textOf(rest, "Body"); string(text) != body {
				return fmt.Errorf("received %q", text)
			}
			got = rest
		}
		if len(remove) == 0 {
			return nil
		}
		_, err = post("DeleteMessageBatch", append(remove, "]}")...)
		return err
	}
}

// textOf returns the next text of a name in an object, which has no escaped characters, and what follows.
func textOf(object []byte, name string) (text, rest []byte, found bool) {
	_, rest, found = bytes.Cut(object, []byte(`"`+name+`":"`))
	text, rest, _ = bytes.Cut(rest, []byte{'"'})
	return text, rest, found
}

func overHTTP(url, body string) batches {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchClients}}
	post := func(ctx context.Context, action, in string, out any) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(in))
		if err != nil {
			return err
		}
		r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
		reply, err := client.Do(r)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s %w", action, text, err)
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(text, out)
	}
	return func(ctx context.Context, queue string) error {
		to := `{"QueueUrl":"` + url + `/000000000000/` + queue + `",`
		var send, remove bytes.Buffer
		for i := range batchMax {
			fmt.Fprintf(&send, `,{"Id":"%d","MessageBody":"%s","MessageGroupId":"tenant"}`, i, body)
		}
		if err := post(ctx, "SendMessageBatch", to+`"Entries":[`+send.String()[1:]+`]}`, nil); err != nil {
			return err
		}
		var got struct {
			Messages []struct{ ReceiptHandle, Body string }
		}
		if err := post(ctx, "ReceiveMessage", to+`"MaxNumberOfMessages":10}`, &got); err != nil || len(got.Messages) == 0 {
			return err
		}
		for i, m := range got.Messages {
			if m.Body != body {
				return fmt.Errorf("received %q", m.Body)
			}
			fmt.Fprintf(&remove, `,{"Id":"%d","ReceiptHandle":"%s"}`, i, m.ReceiptHandle)
		}
		return post(ctx, "DeleteMessageBatch", to+`"Entries":[`+remove.String()[1:]+`]}`, nil)
	}
}

func overSDK(url, body string) batches {
	client := sdk(url, "AKIA1", "s1")
	return func(ctx context.Context, queue string) error {
		to := aws.String(url + "/000000000000/" + queue)
		send := &official.SendMessageBatchInput{QueueUrl: to}
		for i := range batchMax {
			send.Entries = append(send.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: &body, MessageGroupId: aws.String("tenant")})
		}
		if _, err := client.SendMessageBatch(ctx, send); err != nil {
			return err
		}
		got, err := client.ReceiveMessage(ctx, &official.ReceiveMessageInput{QueueUrl: to, MaxNumberOfMessages: batchMax})
		if err != nil || len(got.Messages) == 0 {
			return err
		}
		remove := &official.DeleteMessageBatchInput{QueueUrl: to}
		for i, m := range got.Messages {
			if *m.Body != body {
				return fmt.Errorf("received %q", *m.Body)
			}
			remove.Entries = append(remove.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
		}
		_, err = client.DeleteMessageBatch(ctx, remove)
		return err
	}
}
