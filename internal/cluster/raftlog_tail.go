package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// raft-wal 0.4.2 takes no entries any more if a crash or a full disk comes between its last append to
// a file, which ends with an index, and the beginning of the next file: it finds the index when it
// is opened, refuses to append behind it, and never begins the next file. It does the same for an index
// whose append was torn. So the newest file is looked at before raft-wal is opened:
//
//	file     header 32 | frames
//	frame    type 1 | 0 0 0 | length 4, of a commit its CRC-32C 4 (little-endian) | bytes | padding to 8
//	append   entries, perhaps the index, and a commit with the CRC of all since the commit before
//
// What follows the last whole append is overwritten with zeros, and a file with a whole index is completed
// in the metadata, as raft-wal would have done. Nothing that was acknowledged changes. The zeros matter
// later: raft-wal takes frames behind a commit for proof that the commit was synced, and does not check its
// CRC then. Left there, the rest of one torn append could vouch for the next.
const (
	tailHeader   = 32
	frameHeader  = 8
	frameEntry   = segment.FrameEntry
	frameIndex   = segment.FrameIndex
	frameCommit  = segment.FrameCommit
	frameNothing = segment.FrameInvalid
)

// tailCommit is an append that is whole, as far as its commit says.
type tailCommit struct {
	end     int64 // offset behind it
	crc     uint32
	entries uint64 // in the file up to here
	index   int64  // offset of the contents of the index; 0: there is none
}

// settleTail looks at the newest file of a log. It reports whether it has changed the metadata.
func settleTail(files types.VFS, dir string, s *types.PersistentState) (changed bool, err error) {
	if len(s.Segments) == 0 {
		return false, nil
	}
	tail := &s.Segments[len(s.Segments)-1]
	if !tail.SealTime.IsZero() {
		return false, nil
	}
	f, err := files.OpenWriter(dir, segment.FileName(*tail))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // raft-wal makes it
	}
	if err != nil {
		return false, err
	}
	last, err := wholeAppends(f)
	if err == nil {
		err = clearFrom(f, last.end)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("%s: %w", segment.FileName(*tail), err)
	}
	if last.index == 0 {
		return false, nil
	}
	now := time.Now()
	tail.SealTime, tail.MaxIndex, tail.IndexStart = now, tail.BaseIndex+last.entries-1, uint64(last.index)
	s.Segments = append(s.Segments, types.SegmentInfo{
		ID: s.NextSegmentID, BaseIndex: tail.MaxIndex + 1, MinIndex: tail.MaxIndex + 1, Codec: tail.Codec, CreateTime: now, SizeLimit: tail.SizeLimit,
	})
	s.NextSegmentID++
	return true, nil
}

// wholeAppends returns the last append that is whole.
func wholeAppends(f io.ReaderAt) (tailCommit, error) {
	none := tailCommit{end: tailHeader}
	before, last := none, none
	now := tailCommit{} // what has been read since
	commits := 0
	head := make([]byte, frameHeader)
	at := int64(tailHeader)
	for {
		if n, err := f.ReadAt(head, at); n < frameHeader {
			if !errors.Is(err, io.EOF) {
				return none, err
			}
			break
		}
		length, kind := int64(binary.LittleEndian.Uint32(head[4:])), head[0]
		if kind == frameNothing || kind > frameCommit {
			break
		}
		switch kind {
		case frameEntry:
			now.entries++
		case frameIndex:
			now.index = at + frameHeader
		case frameCommit:
			length = 0
			before = last
			last = tailCommit{end: at + frameHeader, crc: binary.LittleEndian.Uint32(head[4:]), entries: last.entries + now.entries, index: now.index}
			now = tailCommit{}
			commits++
		}
		at += frameHeader + (length+7)/8*8
	}
	if commits == 0 || now != (tailCommit{}) {
		return last, nil // a later append has begun, so this one was synced
	}
	from := before.end
	if commits == 1 {
		from = 0
	}
	body := make([]byte, last.end-frameHeader-from)
	if _, err := f.ReadAt(body, from); err != nil {
		return none, err
	}
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != last.crc {
		return before, nil
	}
	return last, nil
}

// clearFrom overwrites what follows an offset with zeros.
func clearFrom(f types.WritableFile, at int64) error {
	buf, zeros, changed := make([]byte, clearBlock), make([]byte, clearBlock), false
	for {
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(buf[:n], zeros[:n]) {
			changed = true
			if _, err := f.WriteAt(zeros[:n], at); err != nil {
				return err
			}
		}
		if at += int64(n); n < len(buf) {
			break
		}
	}
	if !changed {
		return nil
	}
	return f.Sync()
}

// clearBlock is how much clearFrom reads at a time.
const clearBlock = 256 << 10

// watchedMeta notes the errors of the log's metadata, and looks at the newest file when it is loaded.
type watchedMeta struct {
	types.MetaStore

	files *watchedFiles
}

// Load implements types.MetaStore.
func (m *watchedMeta) Load(dir string) (types.PersistentState, error) {
	s, err := m.MetaStore.Load(dir)
	if err != nil {
		return s, m.files.note(err)
	}
	changed, err := settleTail(m.files, dir, &s)
	if err == nil && changed {
		err = m.CommitState(s)
	}
	return s, err
}

// CommitState implements types.MetaStore.
func (m *watchedMeta) CommitState(s types.PersistentState) error {
	return m.files.note(m.MetaStore.CommitState(s))
}

// writeBytes bounds the entries of one write. raft-wal keeps a buffer for the largest write to a file as
// long as the file is a part of the log: with writes of any size they would have many times the memory
// of the entries under way.
const writeBytes = 1 << 20

// storeInWrites stores entries in writes of writeBytes, or of one entry that is larger.
func (l *raftLog) storeInWrites(w *wal.WAL, entries []*raft.Log) error {
	for from := 0; from < len(entries); {
		to, bytes := from, 0
		for to < len(entries) && (to == from || bytes+len(entries[to].Data) <= writeBytes) {
			bytes += len(entries[to].Data)
			to++
		}
		if err := w.StoreLogs(entries[from:to]); err != nil {
			l.refused.Store(entries[0].Index) // Raft knows none of them
			return err
		}
		from = to
	}
	return nil
}
