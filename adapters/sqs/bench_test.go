package sqs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// BenchmarkBatchesOfTen compares three ways to send, receive and delete batches of ten messages with 16 clients: RESP, where
// ten FILA.ENQUEUE are pipelined; the gateway, asked by a client of HTTP that does as little as possible; and the gateway
// asked by the official SDK, which signs. They take turns, and each has a queue of its own. It reports messages a second, and
// what part of RESP the gateway has.
//
//	TEST_BROKER=../../bin/fila go test -run '^$' -bench BatchesOfTen -benchtime 10x .
func BenchmarkBatchesOfTen(b *testing.B) {
	br := &broker{dir: b.TempDir()}
	if err := br.start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(br.kill)
	open, _ := process(b, br.addr, "")
	client := redis.NewUniversalClient(options(br.addr))
	b.Cleanup(func() { _ = client.Close() })
	signed, _ := process(b, br.addr, keyedAt(b, client))
	body := strings.Repeat("x", 100)
	ways := []struct {
		name string
		do   func(ctx context.Context, queue string) error
	}{
		{"resp", overRESP(client, body)},
		{"http", overHTTP(open, body)},
		{"sdk", overSDK(signed, body)},
	}
	for _, w := range ways {
		if err := client.Do(b.Context(), "FILA.QUEUE", "CREATE", w.name, "NODLQ", "MAXATTEMPTS", 0).Err(); err != nil {
			b.Fatal(err)
		}
	}
	took := map[string]time.Duration{}
	rounds := 0
	for b.Loop() {
		rounds++
		for _, w := range ways {
			began := time.Now()
			var group sync.WaitGroup
			for range benchClients {
				group.Go(func() {
					for range benchRounds {
						if err := w.do(b.Context(), w.name); err != nil {
							b.Error(w.name, err)
							return
						}
					}
				})
			}
			group.Wait()
			took[w.name] += time.Since(began)
		}
	}
	for _, w := range ways {
		b.ReportMetric(float64(rounds*benchClients*benchRounds*batchMax)/took[w.name].Seconds(), w.name+"-msg/s")
		b.ReportMetric(took["resp"].Seconds()/took[w.name].Seconds(), w.name+"/resp")
	}
}

func overRESP(client redis.UniversalClient, body string) func(context.Context, string) error {
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
			args = append(args, leaseOf(item).receipt)
		}
		if len(reply) == 0 {
			return nil
		}
		return client.Do(ctx, args...).Err()
	}
}

func overHTTP(url, body string) func(context.Context, string) error {
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
			Messages []struct{ ReceiptHandle string }
		}
		if err := post(ctx, "ReceiveMessage", to+`"MaxNumberOfMessages":10}`, &got); err != nil || len(got.Messages) == 0 {
			return err
		}
		for i, m := range got.Messages {
			fmt.Fprintf(&remove, `,{"Id":"%d","ReceiptHandle":"%s"}`, i, m.ReceiptHandle)
		}
		return post(ctx, "DeleteMessageBatch", to+`"Entries":[`+remove.String()[1:]+`]}`, nil)
	}
}

func overSDK(url, body string) func(context.Context, string) error {
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
			remove.Entries = append(remove.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
		}
		_, err = client.DeleteMessageBatch(ctx, remove)
		return err
	}
}
