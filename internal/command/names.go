package command

import "hash/maphash"

// nameCache turns bytes into strings, and the same bytes into the same string:
// a connection names the same few queues and keys over and over. It is a fixed
// number of places, so it cannot grow; a name loses its place to the next one
// that falls onto it. The zero value is ready.
type nameCache struct {
	places [namePlaces]string
	marks  [namePlaces]uint16 // of the names: another one is mostly known for it without being read
	seed   maphash.Seed
	seeded bool
}

const namePlaces = 64

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
	h := maphash.Bytes(c.seed, b)
	i, mark := h%namePlaces, uint16(h>>48)
	if c.marks[i] != mark || c.places[i] != string(b) {
		c.places[i], c.marks[i] = string(b), mark
	}
	return c.places[i]
}
