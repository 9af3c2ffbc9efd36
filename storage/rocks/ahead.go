//go:build cgo

package rocks

// #include <stddef.h>
// size_t fila_next_keys(void* iterator, char* to, size_t room, size_t most, size_t* used);
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// keysAhead are keys that an iterator has fetched and not come to yet. A call of RocksDB by way of C
// costs several times what RocksDB needs for a step, so an iterator whose values are not wanted takes
// many steps in a call: 1 after a Seek, twice as many each time, as what follows may be another Seek.
//
// RocksDB's iterator is at the last key that was fetched; or beyond it, at a key that had no room or at
// the end.
type keysAhead struct {
	buf    []byte // of each key its length in 4 bytes, little-endian, and the key
	room   []byte // the memory of buf
	steps  int    // of the next call
	beyond bool
}

const (
	aheadBytes = 64 << 10
	aheadSteps = 1024
)

// KeysOnly implements storage.KeysOnly.
func (i *iterator) KeysOnly() {
	if i.ahead == nil {
		i.ahead = &keysAhead{steps: 1}
	}
}

// drop forgets the keys, before the iterator moves elsewhere.
func (a *keysAhead) drop() {
	if a != nil {
		a.buf, a.steps, a.beyond = nil, 1, false
	}
}

// nextAhead moves to the next key.
func (i *iterator) nextAhead() bool {
	a := i.ahead
	if len(a.buf) == 0 && !a.beyond {
		i.fetch()
	}
	if len(a.buf) == 0 {
		a.beyond = false
		return i.moved()
	}
	n := 4 + binary.LittleEndian.Uint32(a.buf)
	i.key, a.buf = append(i.key[:0], a.buf[4:n]...), a.buf[n:]
	i.hasKey, i.hasValue, i.at = true, false, on
	return true
}

// fetch takes the steps of a call. Where RocksDB has no more keys, or has failed, moved finds it.
func (i *iterator) fetch() {
	a := i.ahead
	if a.room == nil {
		a.room = make([]byte, aheadBytes)
	}
	var used C.size_t
	over := C.fila_next_keys(native(i.it), (*C.char)(unsafe.Pointer(&a.room[0])), C.size_t(len(a.room)), C.size_t(a.steps), &used)
	a.buf, a.beyond = a.room[:used], over != 0
	a.steps = min(a.steps*2, aheadSteps)
}
