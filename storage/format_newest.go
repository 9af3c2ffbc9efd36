//go:build !nextformat

package storage

// ReplicaFormatNewest is the newest format of the store of a node that this program knows. A cluster
// writes it once all of its members know it.
const ReplicaFormatNewest = ReplicaFormatVersion
