// Package fila is a publisher and a subscriber of Watermill (github.com/ThreeDotsLabs/watermill) on Fila,
// a message broker with fair queues that speaks the Redis protocol.
//
// A topic without consumer groups is a queue of that name: its subscribers share the messages. A
// subscriber with a ConsumerGroup has a queue of its own, "topic.group", bound to the topic of Fila; the
// publisher then has FanOut, and each group gets every message.
//
// Delivery is at least once. A message that is not acked is leased again when its visibility timeout has
// passed; the subscriber extends the lease while a handler works. Nack ends the lease as a failure: the
// settings of the queue, or its on_failure hook, decide about the delay of the retry and about the
// dead-letter queue.
//
// Which tenant's message comes next, and what a throttle lets through, is decided in the broker. The
// publisher names key and throttles of a message with its Options:
//
//	publisher := fila.NewPublisher(fila.PublisherConfig{
//		Client:  client,
//		Options: fila.KeyFrom("tenant"),
//	})
package fila
