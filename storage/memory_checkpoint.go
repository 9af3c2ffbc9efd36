package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// A checkpoint of the memory store is one file of batches, each preceded by its length (4
// bytes, big-endian) and its CRC-32C (4 bytes, big-endian). A length of 0 ends it, so
// that truncation is detected.

const (
	checkpointFile  = "memory.batches"
	checkpointBatch = 4 << 20 // bytes after which the next batch starts
)

// Checkpoint writes a consistent copy of the store into a new directory, for
// OpenCheckpoint.
func (m *Memory) Checkpoint(dir string) error {
	m.mu.Lock()
	trees, closed := m.copyTrees(), m.closed
	m.mu.Unlock()
	if closed {
		return fmt.Errorf("checkpoint: %w", ErrClosed)
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, checkpointFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640) //nolint:gosec // the caller's own path
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	err = errors.Join(writeTrees(f, &trees), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// OpenCheckpoint returns a new store with the contents of a checkpoint.
func OpenCheckpoint(dir string) (*Memory, error) {
	f, err := os.Open(filepath.Join(dir, checkpointFile)) //nolint:gosec // the caller's own path
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	defer f.Close()
	m := newMemory()
	for {
		b, err := readFrame(f)
		if err != nil {
			return nil, fmt.Errorf("open checkpoint %s: %w", f.Name(), err)
		}
		if b == nil {
			break
		}
		if err := m.Commit(b, true); err != nil {
			return nil, fmt.Errorf("open checkpoint %s: %w", f.Name(), err)
		}
	}
	if err := CheckFormat(m.Get); err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", f.Name(), err)
	}
	return m, nil
}

func writeTrees(w io.Writer, trees *[FamilyCount]*tree) error {
	var b Batch
	for f, t := range trees {
		for it := t.Iter(); it.Next(); {
			b.Put(Family(f), []byte(it.Key()), it.Value().value)
			if b.Size() < checkpointBatch {
				continue
			}
			if err := writeFrame(w, b.Bytes()); err != nil {
				return err
			}
			b.Reset()
		}
	}
	if err := writeFrame(w, b.Bytes()); err != nil {
		return err
	}
	return writeFrame(w, nil)
}

func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

func writeFrame(w io.Writer, p []byte) error {
	var head [8]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(p)))
	binary.BigEndian.PutUint32(head[4:], checksum(p))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(p)
	return err
}

// readFrame returns nil for the frame that ends the file.
func readFrame(r io.Reader) (*Batch, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("truncated: %w", ErrCorrupt)
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n == 0 {
		return nil, nil //nolint:nilnil // the end, which is neither a batch nor an error
	}
	// Grow while reading instead of allocating the declared length.
	p, err := io.ReadAll(io.LimitReader(r, n))
	if err != nil {
		return nil, err
	}
	if int64(len(p)) < n {
		return nil, fmt.Errorf("truncated: %w", ErrCorrupt)
	}
	if checksum(p) != binary.BigEndian.Uint32(head[4:]) {
		return nil, fmt.Errorf("wrong checksum: %w", ErrCorrupt)
	}
	return ParseBatch(p)
}
