// The thread that writes batches. See writer.go.
#ifndef FILA_WRITER_H
#define FILA_WRITER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A batch on its way. It is the thread's from a byte in ask to a byte in told.
typedef struct {
	uintptr_t batch, size;
	int sync;
	char* error;  // of the last one, to be freed; or null
} fila_write;

typedef struct fila_writer fila_writer;

// Starts a thread that writes to a database. It ends when ask does.
fila_writer* fila_writer_start(void* db, fila_write* w, int ask, int told);
// Waits for its end, and frees it.
void fila_writer_end(fila_writer* w);

#ifdef __cplusplus
}
#endif

#endif
