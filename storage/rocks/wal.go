package rocks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// This file reads RocksDB's log without RocksDB: to say where it is damaged, and to
// get out of it what is behind the damage. A log is blocks of 32 KiB, a block is
// fragments, a fragment is
//
//	CRC-32C 4 | length 2 (both little-endian) | kind 1 | bytes
//
// and a batch is a whole one, or a first, some middle and a last one.

const (
	logBlock  = 32 << 10
	logHeader = 7

	logWhole, logFirst, logMiddle, logLast = 1, 2, 3, 4
)

// logRead is what was found in a log.
type logRead struct {
	batches int
	damage  []int64 // where bytes are no fragment although more follows, or a batch is not whole
	torn    bool    // the end is not a whole batch, as a crash leaves it
}

// readLog hands on every batch of a log that is whole, with where it begins.
func readLog(path string, take func(offset int64, batch []byte) error) (logRead, error) {
	data, err := os.ReadFile(path) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return logRead{}, err
	}
	var r logRead
	var parts []byte
	begun, inParts := int64(0), false
	torn := int64(-1) // what may be damage, or the end
	for at := 0; at < len(data); {
		left := logBlock - at%logBlock
		if left < logHeader {
			at += left
			continue
		}
		kind, body, ok := fragment(data, at)
		if !ok {
			if torn < 0 && !zeros(data[at:min(at+left, len(data))]) {
				torn = int64(at)
			}
			at = nextFragment(data, at)
			continue
		}
		if torn >= 0 {
			r.damage = append(r.damage, torn)
			torn, inParts = -1, false
		}
		switch {
		case kind == logWhole || kind == logFirst:
			if inParts {
				r.damage = append(r.damage, begun)
			}
			begun, parts, inParts = int64(at), append(parts[:0], body...), true
		case inParts:
			parts = append(parts, body...)
		default: // its start is in the damage before it
		}
		at += logHeader + len(body)
		if inParts && (kind == logWhole || kind == logLast) {
			inParts = false
			r.batches++
			if err := take(begun, parts); err != nil {
				return r, err
			}
		}
	}
	r.torn = torn >= 0 || inParts
	return r, nil
}

// fragment returns the fragment at a place, if there is a whole one.
func fragment(data []byte, at int) (kind byte, body []byte, ok bool) {
	if at+logHeader > len(data) {
		return 0, nil, false
	}
	n := int(binary.LittleEndian.Uint16(data[at+4:]))
	kind = data[at+6]
	end := at + logHeader + n
	if kind < logWhole || kind > logLast || end > len(data) || at/logBlock != (end-1)/logBlock {
		return 0, nil, false
	}
	sum := crc32.Checksum(data[at+6:end], crc32.MakeTable(crc32.Castagnoli))
	if masked := (sum>>15 | sum<<17) + 0xa282ead8; masked != binary.LittleEndian.Uint32(data[at:]) {
		return 0, nil, false
	}
	return kind, data[at+logHeader : end], true
}

// nextFragment is where to go on behind what is no fragment: where its length says if
// there is one, else at the next block.
func nextFragment(data []byte, at int) int {
	if at+logHeader <= len(data) {
		next := at + logHeader + int(binary.LittleEndian.Uint16(data[at+4:]))
		if _, _, ok := fragment(data, next); ok && next/logBlock == at/logBlock {
			return next
		}
	}
	return at - at%logBlock + logBlock
}

func zeros(b []byte) bool { return strings.Trim(string(b), "\x00") == "" }

// logs are the log files of a directory, the oldest first.
func logs(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, errors.Join(err, errors.New("log files"))
	}
	slices.Sort(files) // their numbers are padded with zeros
	return files, nil
}

// sequence returns the number of the first write of a batch and how many it holds.
func sequence(batch []byte) (first, n uint64, err error) {
	const header = 12
	if len(batch) < header {
		return 0, 0, fmt.Errorf("a batch of %d bytes", len(batch))
	}
	return binary.LittleEndian.Uint64(batch), uint64(binary.LittleEndian.Uint32(batch[8:])), nil
}
