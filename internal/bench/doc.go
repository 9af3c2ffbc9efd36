// Package bench puts a server under load and says what it did: how many messages a
// second, how long each request took, and what the server used for it. It is
// the client side only; it starts nothing and connects to the one address that it
// is given.
//
// A load is made of [Session]s, each a connection of its own. The sessions of this
// package speak RESP, to Fila and to streams of a Redis server alike, and spend as
// little as they can: on a small machine the client's share is taken from the
// server that is measured. Other systems' sessions come from whoever compares with
// them.
//
// Two ways to send:
//
//   - closed loop: each session sends its next batch when the last is done. This finds the
//     greatest rate.
//   - open loop: batches are due at a fixed rate, whether or not the server
//     keeps up, and latency counts from when a batch was due. So a pause of the server is seen
//     by everything that was due in it, rather than by the one request that was under way.
package bench
