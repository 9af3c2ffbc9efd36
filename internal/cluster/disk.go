//go:build !fault

package cluster

import (
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
)

// diskFiles returns the files of the log.
func diskFiles() types.VFS { return fs.New() }

// diskMeta returns the metadata of the log.
func diskMeta() types.MetaStore { return &metadb.BoltMetaDB{} }
