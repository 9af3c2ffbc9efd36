//go:build !nextformat

package replica

// EntryNewest is the newest version of entries that this program reads.
const EntryNewest = EntryVersion
