// The native writer thread. See writer.go.
#ifndef FILA_WRITER_H
#define FILA_WRITER_H

#include <stdint.h>

#include "spares.h"

#ifdef __cplusplus
extern "C" {
#endif

// A write in progress. It belongs to the thread from a byte in the request pipe until the byte in
// the completion pipe.
typedef struct {
	uintptr_t batch, size;
	int sync;
	char* error;  // of the last write, freed by the receiver; null: none
} fila_write;

typedef struct fila_writer fila_writer;

// Starts a thread that writes to a database, which makes its logs from spares, or from none if that
// is null. The thread ends at the end of file of the request pipe.
fila_writer* fila_writer_start(void* db, fila_spares* spares, fila_write* w, int request, int completed);
// Writes on the thread of the caller, while there is no request.
void fila_writer_write(fila_writer* w);
// Waits for the thread to end and frees it.
void fila_writer_end(fila_writer* w);

#ifdef __cplusplus
}
#endif

#endif
