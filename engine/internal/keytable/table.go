// Package keytable finds entries by name, and by the hash of the name that message ids contain: the fairness keys of a
// queue, of which there may be millions.
package keytable

import (
	"hash/maphash"

	"github.com/faisca/fila/storage"
)

// Table is a set of keys, entries of the caller that have names. The zero value is empty. It knows the hashes of the
// names, not the names: the caller compares them (First). It is used in place of a Go map for three properties:
//
//   - With a million keys, none of them in a processor cache, it finds one with a single
//     cache miss in the table, and that miss can be prefetched (Page.Touch, Page.Peek).
//   - It finds the keys of an id by its hash (WithID).
//   - No insertion rehashes the whole table, which would hold up the loop. (Go's maps are
//     split by pages, too, since Go 1.24.)
//
// It uses extendible hashing: a directory of pages, each an open-addressing table with linear
// probing. A full page is split in two, and the directory is copied when it has to double. So
// an insertion moves at most a page of pageSlots, and eight bytes for each few hundred keys.
//
// The hash in ids is public, so clients can choose names that all have the same. Such names
// are in one page, which cannot be split and grows instead. Within a page the slot follows
// from a seeded hash, which clients cannot predict.
//
// The alternative is two Go maps, by the hash and by the hash in ids. Beside them, with
// prefetching by lookups, the table makes a cycle of a message 7 to 10 % cheaper where keys
// come and go, 1,000,000 at random (an enqueue 15 %), since such a key changes one table
// instead of two; 3 % with 1,000,000 keys that stay (an enqueue 7 %), 2 % with 100,000, and
// nothing with 1,000 (Go 1.26).
type Table[T any] struct {
	pages []*Page[T] // directory, by the upper bits of the hash; a page may be in several places
	bits  uint8      // bits of the hash that the directory uses, at most storage.KeyHashBits: 1<<bits places
	n     int        // keys
}

// Page is a part of a table. It has a power of two of slots, of which at most three quarters are in use.
type Page[T any] struct {
	slots []slot[T]
	bits  uint8 // upper bits of the hash that all of its keys have in common
	n     int   // keys
}

// slot is empty if it has no key.
type slot[T any] struct {
	hash Hash
	key  *T
}

const (
	pageSlots    = 1024 // of a page that is split when it is full
	pageSlotsMin = 8    // of the first page of a queue
	// The directory may have directoryFree places, or one for each placeKeys keys. A page
	// usually has hundreds of keys; only chosen names could make the directory larger.
	directoryFree = 4096
	placeKeys     = 32
)

// Hash is the hash of a name: its upper bits select the page, its lower
// bits the slot. The upper storage.KeyHashBits are the hash in ids, multiplied so that each of its bits
// affects the uppermost ones.
type Hash uint64

const (
	foldMix   = 2592157
	foldUnmix = 417973 // the inverse of foldMix modulo 1<<storage.KeyHashBits
)

// homeOf returns the part of a Hash that follows from the hash in ids.
func homeOf(idHash uint32) Hash {
	return Hash(idHash*foldMix&(1<<storage.KeyHashBits-1)) << (64 - storage.KeyHashBits)
}

// InID returns the hash in ids, storage.KeyHash of the name.
func (h Hash) InID() uint32 {
	return uint32(h>>(64-storage.KeyHashBits)) * foldUnmix & (1<<storage.KeyHashBits - 1)
}

// nameSeed is random for each process, so that tenants cannot choose names of keys that
// collide.
var nameSeed = maphash.MakeSeed() //nolint:gochecknoglobals // of the process, never changed

// HashOf returns the hash of a name. It differs between processes.
func HashOf(name string) Hash {
	return homeOf(storage.KeyHash(name)) | Hash(maphash.String(nameSeed, name)>>storage.KeyHashBits)
}

// Len returns the number of keys.
func (t *Table[T]) Len() int { return t.n }

// Page returns the page of a hash, for prefetching. The table must not be empty.
func (t *Table[T]) Page(h Hash) *Page[T] { return t.pages[h>>1>>(63-t.bits)] }

// home returns the slot of a page at which probing for a hash begins.
func (p *Page[T]) home(h Hash) int { return int(h) & (len(p.slots) - 1) }

// Touch reads the slot at which probing for a hash begins, so that it is in a processor cache. The result depends on
// what was read.
func (p *Page[T]) Touch(h Hash) int64 { return int64(p.slots[p.home(h)].hash) }

// Peek returns the first key with a hash, or nil. The table must not have changed since Page.
func (p *Page[T]) Peek(h Hash) *T {
	k, _ := p.from(h, p.home(h))
	return k
}

// from returns the first key with a hash from a slot on, and its slot, or nil.
func (p *Page[T]) from(h Hash, i int) (k *T, at int) {
	for ; ; i = (i + 1) & (len(p.slots) - 1) {
		if s := &p.slots[i]; s.key == nil || s.hash == h {
			return s.key, i
		}
	}
}

// First returns the first of the keys with a hash, or nil, and where it is, for Next. Different names rarely have
// the same hash: the caller asks on until the key has the name that it looks for.
func (t *Table[T]) First(h Hash) (k *T, at int) {
	if t.n == 0 {
		return nil, 0
	}
	p := t.Page(h)
	return p.from(h, p.home(h))
}

// Next returns the key with a hash that follows the one at a place, or nil.
func (t *Table[T]) Next(h Hash, at int) (k *T, next int) {
	p := t.Page(h)
	return p.from(h, (at+1)&(len(p.slots)-1))
}

// WithID returns the keys to which ids with a hash may belong, in no order. It reads all slots
// of their page, but no key.
func (t *Table[T]) WithID(idHash uint32) (keys []*T) {
	if t.n == 0 {
		return nil
	}
	for _, s := range t.Page(homeOf(idHash)).slots {
		if s.key != nil && s.hash.InID() == idHash {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// Add adds a key that is not in the table. It splits or grows the page first if it is full.
func (t *Table[T]) Add(h Hash, k *T) {
	if t.pages == nil {
		t.pages = []*Page[T]{newPage[T](pageSlotsMin, 0)}
	}
	p := t.Page(h)
	for p.n >= len(p.slots)/4*3 {
		if len(p.slots) < pageSlots || !t.maySplit(p) {
			p.grow()
		} else {
			t.split(p, h)
		}
		p = t.Page(h)
	}
	p.put(slot[T]{h, k})
	p.n++
	t.n++
}

// Remove removes a key and reports whether it was in the table. Pages are neither merged nor
// shrunk until the last key is removed.
func (t *Table[T]) Remove(h Hash, k *T) bool {
	if t.n == 0 {
		return false
	}
	p := t.Page(h)
	mask := len(p.slots) - 1
	i := p.home(h)
	for p.slots[i].key != k {
		if p.slots[i].key == nil {
			return false
		}
		i = (i + 1) & mask
	}
	// Close the gap: a following slot moves into it unless it would then precede its home.
	for j := (i + 1) & mask; p.slots[j].key != nil; j = (j + 1) & mask {
		if (j-p.home(p.slots[j].hash))&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = slot[T]{}
	p.n--
	if t.n--; t.n == 0 {
		*t = Table[T]{} // release the pages of a peak
	}
	return true
}

func newPage[T any](slots int, bits uint8) *Page[T] {
	return &Page[T]{slots: make([]slot[T], slots), bits: bits}
}

// put stores a slot at the first free place from its home on. The page has one.
func (p *Page[T]) put(s slot[T]) {
	i := p.home(s.hash)
	for p.slots[i].key != nil {
		i = (i + 1) & (len(p.slots) - 1)
	}
	p.slots[i] = s
}

// grow doubles the slots of a page.
func (p *Page[T]) grow() {
	old := p.slots
	p.slots = make([]slot[T], 2*len(old))
	for _, s := range old {
		if s.key != nil {
			p.put(s)
		}
	}
}

// maySplit reports whether a full page may be split. A page that has grown is not: its names
// share a hash. Nor is one for which the directory would have to exceed its bound.
func (t *Table[T]) maySplit(p *Page[T]) bool {
	if len(p.slots) > pageSlots || p.bits == storage.KeyHashBits {
		return false
	}
	return p.bits < t.bits || 2*len(t.pages) <= max(directoryFree, t.n/placeKeys)
}

// split replaces the page of a hash by two, divided by the next bit of the hashes. It doubles
// the directory if the page has only one place in it.
func (t *Table[T]) split(p *Page[T], h Hash) {
	if p.bits == t.bits {
		wider := make([]*Page[T], 0, 2*len(t.pages))
		for _, each := range t.pages {
			wider = append(wider, each, each)
		}
		t.pages = wider
		t.bits++
	}
	halves := [2]*Page[T]{newPage[T](pageSlots, p.bits+1), newPage[T](pageSlots, p.bits+1)}
	for _, s := range p.slots {
		if s.key != nil {
			half := halves[s.hash>>(63-p.bits)&1]
			half.put(s)
			half.n++
		}
	}
	places := 1 << (t.bits - p.bits) // of the page, which are adjacent
	first := int(h>>1>>(63-t.bits)) &^ (places - 1)
	for i := range places {
		t.pages[first+i] = halves[i*2/places]
	}
}
