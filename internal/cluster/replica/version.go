package replica

import "github.com/faisca/fila/storage"

// EntryVersion is the version of the entries with which every cluster begins.
const EntryVersion = 1

// Versions are the newest formats that a program reads. Nodes of different versions are one cluster
// during an upgrade, so a leader writes a format only when every member has said that it reads it. Until
// then each of them may be replaced by the program of before.
type Versions struct {
	Entry  uint8  // of entries of the log
	Format uint32 // of the store of a node, see storage.ReplicaFormatVersion
}

// First are the versions with which every cluster begins.
func First() Versions { return Versions{EntryVersion, storage.ReplicaFormatVersion} }

// Newest are the versions of this program.
func Newest() Versions { return Versions{EntryNewest, storage.ReplicaFormatNewest} }

// Common returns what both read.
func (v Versions) Common(o Versions) Versions {
	return Versions{min(v.Entry, o.Entry), min(v.Format, o.Format)}
}

// Reads reports whether a program with these versions reads what one with others writes.
func (v Versions) Reads(o Versions) bool { return v.Entry >= o.Entry && v.Format >= o.Format }
