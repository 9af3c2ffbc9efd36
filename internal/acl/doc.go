// Package acl says who may do what: users with passwords, the commands they may
// run, the queues they may consume from or produce to, and the channels they may
// listen to. The rules are written as Redis writes them.
//
//  1. A [User] never changes. A change makes a new one, from all of its rules or
//     from none, and puts it in its [Account] at once.
//  2. An account outlives its user: who holds one sees each change with the next
//     look, and a deleted user as nil. A user made again under the name is
//     another account.
//  3. What no rule allows is forbidden.
//  4. Passwords are kept as SHA-256 digests and compared in a time that says
//     nothing about them, nor about whether there is such a user.
//
// SHA-256 is fast, which suits passwords that are long and random, as ACL GENPASS
// makes them. A slow hash would help those that can be guessed, and would let
// anybody who can connect keep the broker busy before they are known.
//
// It knows no connection and no command but by name: see [Catalog].
package acl
