package engine

import "hash/maphash"

// keyTable finds the fairness keys of a queue by their names, and by the hash of them
// that ids hold. It does what a map does, and more than a map can be asked for: with a million keys, none of them in a
// cache, it reads one line of memory to find a key and can be told before which one
// (ahead.go).
//
// It is a directory of pages, each an open table of its own (extendible hashing). A
// page that is full becomes two, and the directory is copied when it has to double:
// the most that one insertion moves is a page of pageSlots and eight bytes for each
// few hundred keys. There is no moment at which everything is hashed anew, and
// everybody waits.
//
// The hash in ids is known to everybody, and names can be chosen that all have the same.
// They stand in one page, which cannot be split: it grows. Within a page the names' own
// hash counts, which nobody knows.
type keyTable struct {
	pages []*keyPage // by the upper bits of the hash; a page may stand in several places
	bits  uint8      // of the hash that the directory takes, of foldBits: it has 1<<bits places
	n     int
}

// keyPage has a power of two of slots, of which no more than three of four are taken.
type keyPage struct {
	slots []keySlot
	bits  uint8 // of the hash that all of its keys have in common
	n     int
}

// keySlot is empty where it has no key.
type keySlot struct {
	hash nameHash
	key  *fairKey
}

const (
	pageSlots    = 1024
	pageSlotsMin = 8
	// The directory has as many places as it likes up to the first of these, and beyond
	// it one for so many keys: pages have hundreds, but for those of chosen names.
	directoryFree = 4096
	placeKeys     = 32
)

// nameHash is where a name stands in a table of keys: upper bits lead to the page,
// lower ones to the slot. The upper foldBits are the hash in ids, multiplied so that all
// of its bits are in the upper ones.
type nameHash uint64

const (
	foldMix   = 2592157
	foldUnmix = 417973 // foldMix * foldUnmix is 1, of foldBits
)

// homeOf is the part of a nameHash that follows from the hash in ids.
func homeOf(idHash uint32) nameHash {
	return nameHash(idHash*foldMix&(1<<foldBits-1)) << (64 - foldBits)
}

// idHash is keyHash of the name.
func (h nameHash) idHash() uint32 { return uint32(h>>(64-foldBits)) * foldUnmix & (1<<foldBits - 1) }

// nameSeed makes the hashes this process's own: tenants choose the names of keys, and
// must not be able to choose them so that they meet.
var nameSeed = maphash.MakeSeed() //nolint:gochecknoglobals // of the process, never changed

// hashName returns the hash of a name.
func hashName(name string) nameHash {
	return homeOf(keyHash(name)) | nameHash(maphash.String(nameSeed, name)>>foldBits)
}

func (t *keyTable) page(h nameHash) *keyPage { return t.pages[h>>1>>(63-t.bits)] }

// home is the slot of a page in which a hash is looked for first.
func (p *keyPage) home(h nameHash) int { return int(h) & (len(p.slots) - 1) } //nolint:gosec // the mask bounds it

// get returns the key of a name, or nil.
func (t *keyTable) get(name string) *fairKey {
	if t.n == 0 {
		return nil
	}
	return t.find(hashName(name), name)
}

// peek is find without looking at the key: the first one with that hash, or nil.
func (p *keyPage) peek(h nameHash) *fairKey {
	for i := p.home(h); ; i = (i + 1) & (len(p.slots) - 1) {
		if s := &p.slots[i]; s.key == nil || s.hash == h {
			return s.key
		}
	}
}

// find is get for those who know the hash.
func (t *keyTable) find(h nameHash, name string) *fairKey {
	if t.n == 0 {
		return nil
	}
	p := t.page(h)
	for i := p.home(h); ; i = (i + 1) & (len(p.slots) - 1) {
		s := &p.slots[i]
		if s.key == nil {
			return nil
		}
		if s.hash == h && s.key.name == name {
			return s.key
		}
	}
}

// withID returns the keys that ids with a hash may belong to, in no order. It looks at
// all slots of their page and at no key.
func (t *keyTable) withID(idHash uint32) (keys []*fairKey) {
	if t.n == 0 {
		return nil
	}
	for _, s := range t.page(homeOf(idHash)).slots {
		if s.key != nil && s.hash.idHash() == idHash {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// add puts a key in that is not in it.
func (t *keyTable) add(h nameHash, k *fairKey) {
	if t.pages == nil {
		t.pages = []*keyPage{newKeyPage(pageSlotsMin, 0)}
	}
	p := t.page(h)
	for p.n >= len(p.slots)/4*3 {
		if len(p.slots) < pageSlots || !t.maySplit(p) {
			p.grow()
		} else {
			t.split(p, h)
		}
		p = t.page(h)
	}
	p.put(keySlot{h, k})
	p.n++
	t.n++
}

// remove takes a key out and reports whether it was inside.
func (t *keyTable) remove(h nameHash, k *fairKey) bool {
	if t.n == 0 {
		return false
	}
	p := t.page(h)
	mask := len(p.slots) - 1
	i := p.home(h)
	for p.slots[i].key != k {
		if p.slots[i].key == nil {
			return false
		}
		i = (i + 1) & mask
	}
	// What follows moves up, unless it would then stand before its home.
	for j := (i + 1) & mask; p.slots[j].key != nil; j = (j + 1) & mask {
		if (j-p.home(p.slots[j].hash))&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = keySlot{}
	p.n--
	if t.n--; t.n == 0 {
		*t = keyTable{} // what a busy day has needed is not kept
	}
	return true
}

func newKeyPage(slots int, bits uint8) *keyPage {
	return &keyPage{slots: make([]keySlot, slots), bits: bits}
}

func (p *keyPage) put(s keySlot) {
	i := p.home(s.hash)
	for p.slots[i].key != nil {
		i = (i + 1) & (len(p.slots) - 1)
	}
	p.slots[i] = s
}

func (p *keyPage) grow() {
	old := p.slots
	p.slots = make([]keySlot, 2*len(old))
	for _, s := range old {
		if s.key != nil {
			p.put(s)
		}
	}
}

// maySplit says that a page may become two. One that has had to grow stays one: what
// fills it are names that belong together.
func (t *keyTable) maySplit(p *keyPage) bool {
	if len(p.slots) > pageSlots || p.bits == foldBits {
		return false
	}
	return p.bits < t.bits || 2*len(t.pages) <= max(directoryFree, t.n/placeKeys)
}

// split makes two pages of the full one in which a hash would be, by the next bit of the hashes.
func (t *keyTable) split(p *keyPage, h nameHash) {
	if p.bits == t.bits {
		wider := make([]*keyPage, 0, 2*len(t.pages))
		for _, each := range t.pages {
			wider = append(wider, each, each)
		}
		t.pages = wider
		t.bits++
	}
	halves := [2]*keyPage{newKeyPage(pageSlots, p.bits+1), newKeyPage(pageSlots, p.bits+1)}
	for _, s := range p.slots {
		if s.key != nil {
			half := halves[s.hash>>(63-p.bits)&1]
			half.put(s)
			half.n++
		}
	}
	places := 1 << (t.bits - p.bits)                // of the page: they stand together
	first := int(h>>1>>(63-t.bits)) &^ (places - 1) //nolint:gosec // an index of pages
	for i := range places {
		t.pages[first+i] = halves[i*2/places]
	}
}
