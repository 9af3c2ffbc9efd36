// Package gocloud runs the conformance tests of Go CDK for its driver of SQS against gateways that the environment names. TestClients
// of the package sqs starts it.
package gocloud

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"
)

// client returns a client of the gateway at a URL.
func client(url string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: os.Getenv("AWS_REGION"),
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
	})
}

// harness sends through one gateway and receives through another.
type harness struct{ sender, receiver *sqs.Client }

// driverOf returns what a topic or a subscription of the portable API is made of: the conformance tests take that, and the
// functions of the driver that return it are not exported.
func driverOf[D any](portable any) D {
	return *(*D)(reflect.ValueOf(portable).Elem().FieldByName("driver").Addr().UnsafePointer())
}

func (h *harness) topic(ctx context.Context, url string) driver.Topic {
	return driverOf[driver.Topic](awssnssqs.OpenSQSTopicV2(ctx, h.sender, url, nil))
}

func (h *harness) subscription(ctx context.Context, url string) driver.Subscription {
	return driverOf[driver.Subscription](awssnssqs.OpenSubscription(ctx, h.receiver, url, nil))
}

// topicOf is a topic with the URL of its queue, by which its subscription finds it.
type topicOf struct {
	driver.Topic
	url string
}

func (h *harness) CreateTopic(ctx context.Context, test string) (driver.Topic, func(), error) {
	name := strings.ReplaceAll(test, "/", "-") + "-" + rand.Text()
	made, err := h.sender.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(name[max(0, len(name)-80):])})
	if err != nil {
		return nil, nil, err
	}
	end := func() { _, _ = h.sender.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: made.QueueUrl}) }
	return topicOf{h.topic(ctx, *made.QueueUrl), *made.QueueUrl}, end, nil
}

const nowhere = "http://127.0.0.1:1/000000000000/nowhere" // the host of a URL does not count

func (h *harness) MakeNonexistentTopic(ctx context.Context) (driver.Topic, error) {
	return h.topic(ctx, nowhere), nil
}

func (h *harness) CreateSubscription(ctx context.Context, of driver.Topic, _ string) (driver.Subscription, func(), error) {
	t, is := of.(topicOf)
	if !is {
		return nil, nil, errors.New("a topic of another driver")
	}
	return h.subscription(ctx, t.url), func() {}, nil
}

func (h *harness) MakeNonexistentSubscription(ctx context.Context) (driver.Subscription, func(), error) {
	return h.subscription(ctx, nowhere), func() {}, nil
}

func (h *harness) Close()                              {}
func (h *harness) MaxBatchSizes() (send, ack int)      { return 10, 10 }
func (h *harness) SupportsMultipleSubscriptions() bool { return false }

// sdkTypes checks that the types of the SDK are within reach, as the driver's own tests do.
type sdkTypes struct{}

func (sdkTypes) Name() string { return "types of the SDK" }

func (sdkTypes) TopicCheck(t *pubsub.Topic) error {
	var c *sqs.Client
	return within(t.As(&c))
}

func (sdkTypes) SubscriptionCheck(s *pubsub.Subscription) error {
	var c *sqs.Client
	return within(s.As(&c))
}

func (sdkTypes) TopicErrorCheck(t *pubsub.Topic, err error) error {
	var e smithy.APIError
	return noQueue(t.ErrorAs(err, &e), e)
}

func (sdkTypes) SubscriptionErrorCheck(s *pubsub.Subscription, err error) error {
	var e smithy.APIError
	return noQueue(s.ErrorAs(err, &e), e)
}

func (sdkTypes) MessageCheck(m *pubsub.Message) error {
	var got types.Message
	return within(m.As(&got) && got.ReceiptHandle != nil)
}

func (sdkTypes) BeforeSend(as func(any) bool) error {
	var e *types.SendMessageBatchRequestEntry
	return within(as(&e))
}

func (sdkTypes) AfterSend(as func(any) bool) error {
	var e types.SendMessageBatchResultEntry
	return within(as(&e) && e.MessageId != nil)
}

func within(reached bool) error {
	if !reached {
		return errors.New("the type of the SDK is not within reach")
	}
	return nil
}

func noQueue(reached bool, e smithy.APIError) error {
	if !reached || e.ErrorCode() != "AWS.SimpleQueueService.NonExistentQueue" {
		return fmt.Errorf("the error is %w, want that of a queue that does not exist", e)
	}
	return nil
}

func TestConformance(t *testing.T) {
	h := &harness{client(os.Getenv("AWS_ENDPOINT_URL_SQS")), client(os.Getenv("OTHER_ENDPOINT_URL"))}
	drivertest.RunConformanceTests(t, func(context.Context, *testing.T) (drivertest.Harness, error) { return h, nil }, []drivertest.AsTest{sdkTypes{}})
}
