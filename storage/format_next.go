//go:build nextformat

package storage

// ReplicaFormatNewest is one more than that of the program: tests of upgrades build it with the tag
// nextformat, and nothing else differs in it.
const ReplicaFormatNewest = ReplicaFormatVersion + 1
