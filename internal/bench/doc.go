// Package bench generates load and measures a server: messages per second, the latency of
// each request, and the resources that the server used. It is the client side only: it
// starts nothing and connects to a given address.
//
// A load consists of [Session]s, each with its own connection. The sessions of this
// package speak RESP, to Fila and to streams of a Redis server, and use as little CPU as
// possible, because on a small machine the client competes with the measured server.
// Callers provide sessions for other systems.
//
// Two ways to send:
//
//   - closed loop: each session sends its next batch when the previous one is
//     complete. This finds the maximum rate.
//   - open loop: batches are due at a fixed rate, whether or not the server keeps
//     up, and latency is measured from the due time. So a pause of the server
//     counts for everything due during it, not only for one request.
package bench
