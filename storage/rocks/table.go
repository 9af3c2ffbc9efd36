package rocks

// #include <stdlib.h>
// void* fila_table_open(const char* path, char** err);
// char* fila_table_verify(void* t);
// void fila_table_properties(void* t, unsigned long long* entries, char** family);
// int fila_table_seek(void* t, const char* key, size_t n, char** err);
// int fila_table_next(void* t, char** err);
// const char* fila_table_key(void* t, size_t* n);
// const char* fila_table_value(void* t, size_t* n);
// void fila_table_close(void* t);
import "C"

import (
	"bytes"
	"errors"
	"unsafe"
)

// table is one table file, read without the database that it belongs to.
type table struct {
	c       unsafe.Pointer
	entries uint64
	family  string
}

func openTable(path string) (*table, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	c := C.fila_table_open(name, &msg)
	if c == nil {
		return nil, tableError(msg)
	}
	var entries C.ulonglong
	var family *C.char
	C.fila_table_properties(c, &entries, &family)
	defer C.free(unsafe.Pointer(family))
	return &table{c: c, entries: uint64(entries), family: C.GoString(family)}, nil
}

// verify reads all of the file.
func (t *table) verify() error { return tableError(C.fila_table_verify(t.c)) }

func (t *table) close() { C.fila_table_close(t.c) }

// seek moves to the first key that is not less; it is false at the end.
func (t *table) seek(key []byte) (bool, error) {
	var msg *C.char
	p := (*C.char)(nil)
	if len(key) > 0 {
		p = (*C.char)(unsafe.Pointer(&key[0]))
	}
	n := C.fila_table_seek(t.c, p, C.size_t(len(key)), &msg)
	return n == 1, tableError(msg)
}

func (t *table) next() (bool, error) {
	var msg *C.char
	n := C.fila_table_next(t.c, &msg)
	return n == 1, tableError(msg)
}

func (t *table) record() (key, value []byte) {
	var n C.size_t
	p := C.fila_table_key(t.c, &n)
	key = C.GoBytes(unsafe.Pointer(p), C.int(n))
	p = C.fila_table_value(t.c, &n)
	return key, C.GoBytes(unsafe.Pointer(p), C.int(n))
}

func tableError(msg *C.char) error {
	if msg == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(msg))
	return rocksError(errors.New(C.GoString(msg)))
}

// salvage hands on every record that can be read. It finds the end of a stretch that
// cannot by trying: seeking into one fails.
func (t *table) salvage(take func(key, value []byte) error) error {
	ok, bad := t.seek(nil)
	var last []byte
	for {
		if bad != nil {
			next := t.pastDamage(last)
			if next == nil {
				return nil
			}
			ok, bad = t.seek(next)
			last = next
			continue
		}
		if !ok {
			return nil
		}
		key, value := t.record()
		if err := take(key, value); err != nil {
			return err
		}
		last = key
		ok, bad = t.next()
	}
}

// pastDamage returns a key behind last from which the file can be read again, as near
// as can be found; nil if there is none.
func (t *table) pastDamage(last []byte) []byte {
	const width = 64 // bytes that candidates differ in
	from := append(bytes.Clone(last), make([]byte, max(width-len(last), 1))...)
	var to []byte
	for i := len(from) - 1; i >= 0 && to == nil; i-- { // the nearest first: from with a byte counted up, from the end on
		for _, step := range []int{1, 16, 255} {
			candidate := bytes.Clone(from[:i+1])
			if int(candidate[i])+step > 255 {
				candidate[i] = 255
			} else {
				candidate[i] += byte(step)
			}
			if bytes.Compare(candidate, from) > 0 && t.readable(candidate) {
				to = make([]byte, len(from))
				copy(to, candidate)
				break
			}
		}
	}
	if to == nil {
		return nil
	}
	to = t.firstReadable(from, to)
	// There may be a second damaged block before to, and between the two all that
	// would be given up: look there, too.
	for {
		before, nearer := t.probe(from, to)
		if nearer == nil {
			return to
		}
		to = t.firstReadable(before, nearer)
	}
}

// firstReadable halves the stretch between from, which cannot be read, and to, which
// can, until there is none between.
func (t *table) firstReadable(from, to []byte) []byte {
	for range 8 * len(from) {
		middle := between(from, to)
		if bytes.Equal(middle, from) {
			break
		}
		if t.readable(middle) {
			to = middle
		} else {
			from = middle
		}
	}
	return to
}

// probe looks for a key between from, which cannot be read, and to, from which the
// file can be read as well, at places that differ in the first two bytes in which these
// two do. It returns the place and the one before; nil if there is none.
func (t *table) probe(from, to []byte) (before, found []byte) {
	const most = 4096 // some tenth of a second
	at := 0
	for at < len(from)-2 && from[at] == to[at] {
		at++
	}
	number := func(key []byte) int { return int(key[at])<<8 | int(key[at+1]) }
	first, last := number(from)+1, number(to)
	step := max(1, (last-first)/most)
	before = from
	for n := first; n < last; n += step {
		place := make([]byte, len(from))
		copy(place, from[:at])
		place[at], place[at+1] = byte(n>>8), byte(n)
		if t.readable(place) {
			return before, place
		}
		before = place
	}
	return nil, nil
}

func (t *table) readable(key []byte) bool {
	_, err := t.seek(key)
	return err == nil
}

// between is half of the sum of two keys of one length, as numbers.
func between(a, b []byte) []byte {
	out := make([]byte, len(a))
	carry := 0
	for i := len(a) - 1; i >= 0; i-- {
		sum := int(a[i]) + int(b[i]) + carry
		out[i], carry = byte(sum), sum>>8
	}
	for i := range out { // carry is the bit above the first byte
		bit := int(out[i]) & 1
		out[i] = byte(carry<<7) | out[i]>>1
		carry = bit
	}
	return out
}
