//go:build nextformat

package replica

// EntryNewest is one more than that of the program: tests of upgrades build it with the tag nextformat,
// and nothing else differs in it.
const EntryNewest = EntryVersion + 1
