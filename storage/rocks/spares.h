// Spare logs. See spares.cc.
#ifndef FILA_SPARES_H
#define FILA_SPARES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fila_spares fila_spares;

// Has a database make its logs from spares of a number of bytes each, of which at most that many are
// ready; 0: none are made. A log has a multiple of these bytes until it is closed. Null: this version of
// RocksDB cannot, or there can be no further thread. The result has to outlive the database.
fila_spares* fila_spares_use(void* options, const char* dir, size_t bytes, size_t most);
// Removes the spares. The database must be closed.
void fila_spares_end(fila_spares* s);
// Has the disk begin to write what is appended to logs from now on (early), or not before a sync.
void fila_spares_early(fila_spares* s, int early);
// Reports whether the newest log ends in bytes that are not synced: its number, and where they begin.
int fila_spares_unsynced(fila_spares* s, uint64_t* log, uint64_t* from);

#ifdef __cplusplus
}
#endif

#endif
