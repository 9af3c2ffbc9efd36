package commands

import "hash/maphash"

// nameCache turns bytes into strings, and the same bytes into the same string:
// a connection names the same few queues and keys over and over. It is a fixed
// number of places, so it cannot grow; a name loses its place to the next one
// that falls onto it. The zero value is ready.
type nameCache struct {
	places [64]string
	seed   maphash.Seed
	seeded bool
}

// nameCacheMax is the longest name, in bytes, that a connection remembers.
const nameCacheMax = 512

func (c *nameCache) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > nameCacheMax {
		return string(b)
	}
	if !c.seeded {
		c.seed, c.seeded = maphash.MakeSeed(), true
	}
	place := &c.places[maphash.Bytes(c.seed, b)%uint64(len(c.places))]
	if *place != string(b) {
		*place = string(b)
	}
	return *place
}
