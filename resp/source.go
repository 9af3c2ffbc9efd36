package resp

import "io"

// streamSource reads from any io.Reader. It cannot wait for readiness, so it blocks with
// a small buffer and uses a large one only while reads fill their buffer.
type streamSource struct {
	from  io.Reader
	small *scratch
	full  bool // the last read filled its buffer
}

func newStreamSource(from io.Reader) *streamSource {
	return &streamSource{from: from, small: &scratch{buf: make([]byte, scratchSmallBytes)}}
}

func (s *streamSource) fill(r *reader) (int, error) {
	borrow := r.pools.getScratch
	if !s.full {
		r.park()
		borrow = func() *scratch { return s.small }
	} else if r.s == s.small {
		r.park()
	}
	space := r.room(borrow)
	n, err := s.from.Read(space)
	s.full = n == len(space)
	return n, err
}
