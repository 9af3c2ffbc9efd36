package sqs

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestChangesOfAQueueAtTheSameTimeAreAllKept(t *testing.T) {
	address := serve(t, Config{})
	url := address + "/000000000000/changed"
	ask(t, address, "CreateQueue", map[string]any{"QueueName": "changed"})
	const tags = 10
	var all sync.WaitGroup
	for i := range tags {
		all.Go(func() {
			if _, failed := ask(t, address, "TagQueue", map[string]any{"QueueUrl": url, "Tags": map[string]string{fmt.Sprint(i): "a"}}); failed != "" {
				t.Error(failed)
			}
		})
	}
	all.Go(func() {
		if _, failed := ask(t, address, "SetQueueAttributes", map[string]any{"QueueUrl": url, "Attributes": map[string]string{"DelaySeconds": "7"}}); failed != "" {
			t.Error(failed)
		}
	})
	all.Wait()
	out, _ := ask(t, address, "ListQueueTags", map[string]any{"QueueUrl": url})
	if has, _ := out["Tags"].(map[string]any); len(has) != tags {
		t.Errorf("%v, want %d tags", out, tags)
	}
	out, _ = ask(t, address, "GetQueueAttributes", map[string]any{"QueueUrl": url, "AttributeNames": []string{"DelaySeconds"}})
	if at(out, "Attributes.DelaySeconds") != "7" {
		t.Error(out)
	}
}

func TestAQueueIsThatOfTheRequestThatCreatedIt(t *testing.T) {
	const requests = 10
	address := serve(t, Config{})
	var created sync.Map // delays
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			delay := fmt.Sprint(i + 1)
			switch _, failed := ask(t, address, "CreateQueue", map[string]any{"QueueName": "contended", "Attributes": map[string]string{"DelaySeconds": delay}}); failed {
			case "":
				created.Store(delay, true)
			case "QueueNameExists":
			default:
				t.Error(failed)
			}
		})
	}
	all.Wait()
	out, _ := ask(t, address, "GetQueueAttributes", map[string]any{"QueueUrl": address + "/000000000000/contended", "AttributeNames": []string{"DelaySeconds"}})
	created.Range(func(delay, _ any) bool {
		if at(out, "Attributes.DelaySeconds") != delay {
			t.Errorf("it was created with DelaySeconds %v, and has %v", delay, out)
		}
		return true
	})
}

// beforeStored calls a function before each FILA.CONFIG SET of a client.
type beforeStored func()

func (beforeStored) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f beforeStored) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); args[0] == "FILA.CONFIG" && args[1] == "SET" {
			f()
		}
		return next(ctx, cmd)
	}
}

func (beforeStored) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAQueueThatAnotherGatewayCreatesMeanwhileIsAsGood(t *testing.T) {
	g, err := New(Config{Broker: options(shared.Load().addr)})
	if err != nil {
		t.Fatal(err)
	}
	here, other := serveGateway(t, g), serve(t, Config{})
	in := map[string]any{"QueueName": "meanwhile.fifo", "Attributes": map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}}
	meanwhile := 0
	g.session(AccessKey{}).client.AddHook(beforeStored(func() {
		if _, failed := ask(t, other, "CreateQueue", in); failed != "" {
			t.Error(failed)
		}
		meanwhile++
	}))
	if _, failed := ask(t, here, "CreateQueue", in); failed != "" || meanwhile != 1 {
		t.Errorf("%q after %d", failed, meanwhile)
	}
}
