package command

import "hash/maphash"

// nameCache converts bytes to strings without allocating for repeated names, since a connection uses
// few queues and keys. It is a direct-mapped cache of fixed size. The zero value is ready.
type nameCache struct {
	places [namePlaces]string
	marks  [namePlaces]uint16 // hashes of the names, compared first
	seed   maphash.Seed
	seeded bool
}

const namePlaces = 64

// nameCacheMax is the greatest length in bytes of a cached name.
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
