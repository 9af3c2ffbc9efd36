package main

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// diskNeeded is how many bytes must be free where a run writes: what the tests of a tier have on disk at a time,
// and what the compiler adds to its cache. With less, tests fail for what has nothing to do with the change.
func diskNeeded(tier string) uint64 {
	if tier == "quick" {
		return 1 << 30
	}
	return 6 << 30
}

// enoughDisk returns an error that names the first directory with fewer than need bytes free. A directory that
// is not there, or whose file system cannot be asked, has enough.
func enoughDisk(need uint64, dirs ...string) error {
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) != nil {
			continue
		}
		if free := fs.Bavail * uint64(fs.Bsize); free < need {
			return fmt.Errorf("%s has %.1f GiB free, a run needs %.0f GiB: delete what is not needed there, such as the cache of the compiler with go clean -cache",
				dir, float64(free)/(1<<30), float64(need)/(1<<30))
		}
	}
	return nil
}

// writesTo are the directories that a run writes to.
func writesTo(root string) []string {
	dirs := []string{root, os.TempDir()}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, cache)
	}
	return dirs
}
