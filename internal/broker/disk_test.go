package broker

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheSizeOfTheStoreIsWhatItsFilesTake(t *testing.T) {
	d := &disk{path: t.TempDir()}
	d.look()
	before, free := d.figures()
	if free == 0 {
		t.Error("nothing is free")
	}
	const files, size = 3, 1 << 20
	block := make([]byte, size)
	for i := range block {
		block[i] = byte(i*i>>8 ^ i) // no file system keeps it as a hole
	}
	for _, name := range []string{"a", "b", filepath.Join("below", "c")} {
		name = filepath.Join(d.path, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(block)
		if err == nil {
			err = f.Sync()
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	d.look()
	if after, _ := d.figures(); after < before+files*size || after > before+2*files*size {
		t.Errorf("%d bytes are %d", files*size, after-before)
	}
	if err := os.RemoveAll(d.path); err != nil {
		t.Fatal(err)
	}
	d.look()
	if size, free := d.figures(); size != 0 || free != 0 {
		t.Errorf("of what is not there: %d, %d", size, free)
	}
}
