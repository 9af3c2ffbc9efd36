// Package sqs serves the API of Amazon SQS from queues of Fila.
//
// A [Gateway] is served by its [Gateway.Server]. It keeps nothing: any number of them serve the same broker. What a request asks for
// becomes a command of Fila:
//
//	SendMessage                 FILA.ENQUEUE, MessageGroupId as KEY, MessageDeduplicationId as DEDUP
//	ReceiveMessage              FILA.LEASE, WaitTimeSeconds as BLOCK
//	DeleteMessage               FILA.ACK
//	ChangeMessageVisibility     FILA.EXTEND, or FILA.NACK DELAY 0 for 0 seconds
//	CreateQueue                 FILA.QUEUE CREATE, ORDERED ON for names that end in .fifo
//	RedrivePolicy               MAXATTEMPTS and DLQ of the queue
//	StartMessageMoveTask        FILA.REDRIVE
//
// Attributes of a queue that Fila does not have (DelaySeconds, tags and such) are a value of the runtime configuration,
// sqs:<queue>, which gateways read again after a second.
//
// # A request
//
// The server is fasthttp's, which takes half of the CPU time of net/http's. Gateway.serve verifies the signature
// (signature.go), and decodes the request into the struct of its action by one of two protocols: JSON 1.0 (protocol.go) or
// the older Query with replies in XML (query.go). The action (the table in actions.go) works with the broker as the user of
// the access key. Its result, or its [fault], is encoded by the same protocol.
//
// What requests send at the same time goes to the broker in one pipeline (pipeliner.go): commands that change messages in one,
// whose replies wait for the broker's disk, leases that do not wait for messages in another. A receive that waits has a
// connection of its own.
package sqs
