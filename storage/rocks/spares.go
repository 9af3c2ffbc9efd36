package rocks

// #include <stdlib.h>
// #include "spares.h"
import "C"

import (
	"unsafe"

	"github.com/linxGnu/grocksdb"
	"golang.org/x/sys/unix"

	"github.com/faisca/fila/internal/tuning"
)

const (
	sparePattern = "fila-spare-*"
	// spareBytes is as much as a memtable takes: a log has less of the same records.
	spareBytes = 4 << 20
	sparesMost = 8
	// spareShare bounds all spares together to this fraction of a small disk.
	spareShare = 32
)

// spareLogs are the spares of an open database, see spares.cc. Nil: there are none.
type spareLogs C.fila_spares

// useSpares has a database make its logs from spares where that makes syncs faster: on file systems
// that write over a file in place. Elsewhere logs are ordinary files, but for their length. A replica
// commits without syncs.
func useSpares(o *grocksdb.Options, dir string, p *profile) *spareLogs {
	var fs unix.Statfs_t
	if !tuning.Enabled || p.replica {
		return nil
	}
	most := int64(0)
	if unix.Statfs(dir, &fs) == nil && writesOver(&fs) {
		most = min(int64(p.spares), int64(fs.Blocks)*fs.Bsize/spareShare/spareBytes)
	}
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	return (*spareLogs)(C.fila_spares_use(native(o), path, C.size_t(spareBytes), C.size_t(most)))
}

// writesOver reports whether a file system changes what a file has in place.
func writesOver(fs *unix.Statfs_t) bool {
	return fs.Type == unix.EXT4_SUPER_MAGIC || fs.Type == unix.XFS_SUPER_MAGIC
}

// end removes the spares. The database must be closed.
func (s *spareLogs) end() {
	if s != nil {
		C.fila_spares_end((*C.fila_spares)(s))
	}
}

// removeSpares removes what a killed process has left. No database may be using spares in dir.
func removeSpares(dir string) { removeMatching(dir, sparePattern) }
