//go:build !plain

package rocks

// #include <stdlib.h>
// #include "writer.h"
// #cgo noescape fila_writer_write
// #cgo nocallback fila_writer_write
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/linxGnu/grocksdb"
)

// writer applies batches on a native thread, not managed by the Go scheduler.
//
// A blocking cgo call occupies the scheduler: its monitor checks every 20 µs, takes the processor
// from the thread that waits for the disk and assigns it to another, and the returning call has to
// acquire a processor again. So the goroutine passes a batch by writing a byte into a pipe, and
// waits in the netpoller for the byte that reports the end of the write.
//
// One write is in progress at a time: between request and completion the batch and the fields of
// fila_write belong to the thread. A short write is a call instead (directMax).
type writer struct {
	mu        sync.Mutex
	c         *C.fila_writer
	w         *C.fila_write
	request   *os.File // the Go end of the pipe to the thread
	requestFD uintptr
	completed *os.File // the Go end of the pipe from the thread
	source    syscall.RawConn
	ends      [2]*os.File // the thread's ends of both pipes
	pin       runtime.Pinner
	exchange  func(fd uintptr) bool // attempt, a value, so that it is made once
	sent      bool                  // the request of the present write
	failed    error                 // why it could not be sent, or its completion not be read
}

// directMax is the size in bytes of the batches up to which write makes the call itself if they are not
// synced. RocksDB then takes some 50 µs at most, about as long as two threads take to wake each other;
// should it take longer, as when it stalls writes, Go's scheduler takes the processor back. With
// storage.sync interval, 16 × 1, it gains 18 % of the CPU; with larger batches nothing.
const directMax = 16 << 10

// newWriter starts the thread. It fails only if the pipes cannot be opened.
func newWriter(db *grocksdb.DB, spares *spareLogs) (*writer, error) {
	w := &writer{}
	w.exchange = w.attempt
	if err := w.openFiles(); err != nil {
		w.closeFiles()
		return nil, fmt.Errorf("writer: %w", err)
	}
	w.w = (*C.fila_write)(C.calloc(1, C.sizeof_fila_write))
	w.requestFD = w.request.Fd()
	w.c = C.fila_writer_start(native(db), (*C.fila_spares)(spares), w.w, C.int(w.ends[0].Fd()), C.int(w.ends[1].Fd()))
	return w, nil
}

func (w *writer) openFiles() (err error) {
	w.ends[0], w.request, err = os.Pipe()
	if err != nil {
		return err
	}
	w.completed, w.ends[1], err = os.Pipe()
	if err != nil {
		return err
	}
	w.source, err = w.completed.SyscallConn()
	return err
}

// write applies a batch atomically, with sync after an fsync of the log. It returns when RocksDB
// has, with RocksDB's error.
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
	w.sent, w.failed = false, nil
	if !sync && len(batch) <= directMax {
		C.fila_writer_write(w.c)
	} else if err := cmp.Or(w.source.Read(w.exchange), w.failed); err != nil {
		return fmt.Errorf("writer: %w", err)
	}
	if text := w.w.error; text != nil {
		w.w.error = nil
		defer C.free(unsafe.Pointer(text))
		return rocksError(errors.New(C.GoString(text)))
	}
	return nil
}

// attempt sends the request, and then reads what reports its completion. It returns false to be called
// again when there is something to read. The netpoller waits for that from before the request on.
func (w *writer) attempt(completed uintptr) bool {
	if !w.sent {
		w.sent = true
		w.failed = sendByte(w.requestFD)
		return w.failed != nil
	}
	done, err := receiveByte(completed)
	w.failed = err
	return done
}

// close stops the thread and frees its memory. No write may be in progress.
func (w *writer) close() {
	_ = w.request.Close() // end of file stops the thread
	C.fila_writer_end(w.c)
	C.free(unsafe.Pointer(w.w))
	w.closeFiles()
}

func (w *writer) closeFiles() {
	for _, f := range []*os.File{w.request, w.completed, w.ends[0], w.ends[1]} {
		if f != nil {
			_ = f.Close() // pipes
		}
	}
}
