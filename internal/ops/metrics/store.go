package metrics

import "strconv"

func (s *Store) write(f *families) {
	f.count(rocksMemtable, s.MemtableBytes, nil)
	f.count(rocksCache, s.CacheBytes, nil)
	f.count(rocksPending, s.PendingBytes, nil)
	f.count(rocksWAL, s.WALBytes, nil)
	for level, n := range s.LevelFiles {
		f.count(rocksLevelFiles, n, label(labelLevel, strconv.Itoa(level)))
	}
	f.flag(rocksStopped, s.Stopped, nil)
	f.count(rocksCacheHits, s.CacheHits, nil)
	f.count(rocksCacheMisses, s.CacheMisses, nil)
	f.value(rocksStall, s.Stalled.Seconds(), nil)
}
