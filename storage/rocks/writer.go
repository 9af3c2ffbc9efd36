package rocks

// #include <stdlib.h>
// #include "writer.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/linxGnu/grocksdb"
)

// writer writes batches on a thread that Go's scheduler does not know.
//
// A call of C that lasts keeps the scheduler busy: its monitor looks each 20 µs, takes
// the processor from the thread that waits for the disk, and finds it another one. And
// whoever comes back has to find a processor first. So a batch is handed over with a byte
// in a pipe, and its end is a byte in another, for which a goroutine waits as for what
// a client sends.
type writer struct {
	mu     sync.Mutex
	c      *C.fila_writer
	w      *C.fila_write
	ask    *os.File // to the thread
	askFD  uintptr
	told   *os.File // from it
	source syscall.RawConn
	ends   [2]*os.File // the thread's ends
	pin    runtime.Pinner
}

func newWriter(db *grocksdb.DB) (*writer, error) {
	w := &writer{}
	if err := w.openFiles(); err != nil {
		w.closeFiles()
		return nil, fmt.Errorf("writer: %w", err)
	}
	w.w = (*C.fila_write)(C.calloc(1, C.sizeof_fila_write))
	w.askFD = w.ask.Fd()
	w.c = C.fila_writer_start(native(db), w.w, C.int(w.ends[0].Fd()), C.int(w.ends[1].Fd()))
	return w, nil
}

func (w *writer) openFiles() (err error) {
	w.ends[0], w.ask, err = os.Pipe()
	if err != nil {
		return err
	}
	w.told, w.ends[1], err = os.Pipe()
	if err != nil {
		return err
	}
	w.source, err = w.told.SyscallConn()
	return err
}

// write writes a batch as a whole, and to the disk with sync.
func (w *writer) write(batch []byte, sync bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := unsafe.SliceData(batch)
	w.pin.Pin(first)
	defer w.pin.Unpin()
	w.w.batch, w.w.size, w.w.sync = C.uintptr_t(uintptr(unsafe.Pointer(first))), C.uintptr_t(len(batch)), 0
	if sync {
		w.w.sync = 1
	}
	if err := sendByte(w.askFD); err != nil {
		return fmt.Errorf("writer: %w", err)
	}
	if err := awaitByte(w.source); err != nil {
		return fmt.Errorf("writer: %w", err)
	}
	if text := w.w.error; text != nil {
		w.w.error = nil
		defer C.free(unsafe.Pointer(text))
		return rocksError(errors.New(C.GoString(text)))
	}
	return nil
}

// close ends the thread. Nothing may be under way.
func (w *writer) close() {
	_ = w.ask.Close() // a pipe
	C.fila_writer_end(w.c)
	C.free(unsafe.Pointer(w.w))
	w.closeFiles()
}

func (w *writer) closeFiles() {
	for _, f := range []*os.File{w.ask, w.told, w.ends[0], w.ends[1]} {
		if f != nil {
			_ = f.Close() // pipes
		}
	}
}
