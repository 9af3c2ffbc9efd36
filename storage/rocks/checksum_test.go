//go:build cgo && !plain && amd64

package rocks

import (
	"debug/elf"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestChecksumsAreThoseOfGo(t *testing.T) {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	for from := range 9 {
		for to := from; to <= len(data); to++ {
			part, first := data[from:to], (to-from)/3
			want := crc32.Checksum(part, castagnoli)
			for name, sum := range map[string]func(uint32, []byte) uint32{"by instruction": checksum, "by software": softChecksum} {
				if got := sum(0, part); got != want {
					t.Fatalf("%s, bytes %d to %d: %08x, want %08x", name, from, to, got, want)
				}
				if got := sum(sum(0, part[:first]), part[first:]); got != want {
					t.Fatalf("%s, bytes %d to %d in two parts: %08x, want %08x", name, from, to, got, want)
				}
			}
		}
	}
}

// A library that exports the function, and so calls the first one that is exported, finds that of the
// program. Some systems' libraries hide it.
func TestTheLibraryFindsTheChecksumOfTheProgram(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	library := regexp.MustCompile(`/\S*/librocksdb\S*`).Find(mapped)
	if library == nil {
		t.Fatal("RocksDB's library is not mapped")
	}
	if exportsChecksum(t, string(library)) && !exportsChecksum(t, program) {
		t.Errorf("%s exports %s, and %s does not", library, checksumName, program)
	}
}

func exportsChecksum(t *testing.T, path string) bool {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == checksumName && s.Section != elf.SHN_UNDEF })
}
