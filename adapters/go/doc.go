// Package fila has queues and workers of Fila, a message broker with fair queues that speaks the Redis
// protocol, on go-redis.
//
// A Worker leases messages and hands them to its Handler. While that works, the lease is extended. Its
// return acks the message, an error nacks it: the settings of the queue, or its on_failure hook, decide
// about the retry and about the dead-letter queue. Delivery is at least once.
//
// Which tenant's message comes next, and what a throttle lets through, is decided in the broker. The
// producer names key and throttles of each Message.
package fila
