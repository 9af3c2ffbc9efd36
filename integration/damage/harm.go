package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// harm is one way to damage one file. The bytes in [from, to) differ from those written.
type harm struct {
	file     string
	what     string
	from, to int64
	removed  bool
	cut      bool
	do       func(b []byte) []byte
}

func (h *harm) String() string { return h.what + " of " + h.file }

// hits reports whether the damage affects a place.
func (h *harm) hits(p place) bool {
	return p.file == h.file && (h.removed || p.from < h.to && p.to > h.from)
}

// chooseHarm chooses a kind of file, then a file, then the damage.
func chooseHarm(o *original, rng *rand.Rand) (harm, error) {
	kinds := []string{"*.sst", "*.sst", "*.sst", "*.log", "*.log", "*.log", "MANIFEST-*", "MANIFEST-*", "CURRENT", "OPTIONS-*", "IDENTITY", "fila-logs"}
	for {
		paths, err := filepath.Glob(filepath.Join(o.data, kinds[rng.IntN(len(kinds))]))
		if err != nil {
			return harm{}, err
		}
		if len(paths) == 0 {
			continue
		}
		path := paths[rng.IntN(len(paths))]
		info, err := os.Stat(path)
		if err != nil {
			return harm{}, err
		}
		if info.Size() == 0 {
			continue
		}
		return newHarm(filepath.Base(path), info.Size(), rng), nil
	}
}

func newHarm(file string, size int64, rng *rand.Rand) harm {
	at := rng.Int64N(size)
	if rng.IntN(4) == 0 { // the end, which a uniform choice would rarely hit
		at = max(size-1-rng.Int64N(min(size, 200)), 0)
	}
	switch rng.IntN(6) {
	case 0, 1:
		bit := byte(1) << rng.IntN(8)
		return harm{file: file, what: fmt.Sprintf("a flipped bit at %d", at), from: at, to: at + 1, do: func(b []byte) []byte { b[at] ^= bit; return b }}
	case 2:
		n := min(1+rng.Int64N(20), size-at)
		mask := byte(1 + rng.IntN(255))
		return harm{file: file, what: fmt.Sprintf("%d other bytes at %d", n, at), from: at, to: at + n, do: func(b []byte) []byte {
			for i := at; i < at+n; i++ {
				b[i] ^= mask
			}
			return b
		}}
	case 3:
		n := min(1+rng.Int64N(40_000), size-at)
		return harm{file: file, what: fmt.Sprintf("%d zeros at %d", n, at), from: at, to: at + n, do: func(b []byte) []byte { clear(b[at : at+n]); return b }}
	case 4:
		return harm{file: file, what: fmt.Sprintf("a cut at %d", at), from: at, to: size, cut: true, do: func(b []byte) []byte { return b[:at] }}
	default:
		return harm{file: file, what: "the removal", to: size, removed: true}
	}
}

// apply damages a store.
func (h *harm) apply(data string) error {
	path := filepath.Join(data, h.file)
	if h.removed {
		return os.Remove(path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, h.do(b), 0o600)
}

// needless reports whether the store does not need the file.
func (h *harm) needless() bool {
	return strings.HasPrefix(h.file, "OPTIONS-") || h.file == "IDENTITY" || h.file == "fila-logs"
}
