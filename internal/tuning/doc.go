// Package tuning is the switch of the mechanisms that bypass a default of Go's scheduler, its
// garbage collector, RocksDB or the C library. The build tag plain turns all of them off: then the
// broker reads and writes sockets through net.Conn, commits on the committer's goroutine, and
// leaves everything else at its default. Replies, records and guarantees are the same in both
// builds; a plain build is the reference for what each mechanism gains, and for errors that might
// come from one of them.
//
// docs/internals/below-the-defaults.md lists the mechanisms. Most test Enabled; those that are
// made of other code altogether (the writer thread, the allocator's settings) are files with the
// build tag.
package tuning
