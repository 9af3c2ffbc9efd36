// Package filapubsub is a driver of Go CDK's pubsub (gocloud.dev/pubsub) for Fila, a message broker with
// fair queues that speaks the Redis protocol.
//
// A subscription is a queue. OpenTopic sends to one queue; with TopicOptions.FanOut it sends to all queues
// that are bound to a topic of Fila (FILA.TOPIC BIND), each of which gets every message.
//
// # URLs
//
// For pubsub.OpenTopic and pubsub.OpenSubscription the package registers the scheme "fila": "fila://orders"
// is the queue orders, and "fila://orders?fanout=1" a topic. The broker is that of the environment variable
// FILA_SERVER_URL, as "fila://127.0.0.1:5555". See URLOpener for the parameters.
//
// # Message delivery semantics
//
// Delivery is at least once. A message that is neither acked nor nacked within the visibility timeout is
// delivered again. Nack is a failure: the settings of the queue, or its on_failure hook, decide when the
// message is delivered again, and when it goes to the dead-letter queue.
//
// # As
//
//   - Topic, Subscription: redis.UniversalClient
//   - Message: *Delivery, with the fairness key, the attempt and the receipt
//   - Message.BeforeSend: **Options, the options of FILA.ENQUEUE for the message
//   - Error: redis.Error
package filapubsub
