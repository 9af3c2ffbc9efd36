// Package acl implements users and their rights: passwords, the commands that a user may
// run, the queues to consume from or produce to, and the channels to subscribe to. Rules
// use the syntax of Redis.
//
//  1. A [User] is immutable. A change builds a new one, from all of its rules or
//     from none, and stores it in its [Account] atomically.
//  2. An account outlasts its user: its holder sees each change at the next read,
//     and a deleted user as nil. A user created again under the name has another
//     account.
//  3. What no rule allows is forbidden.
//  4. Passwords are stored as SHA-256 digests and compared in constant time, also
//     for users that do not exist.
//
// SHA-256 is fast, which suits long, random passwords such as those of ACL GENPASS. A
// slow hash would protect guessable passwords better, but would let unauthenticated
// clients keep the broker busy.
//
// The package refers to commands by name only: see [Catalog].
package acl
