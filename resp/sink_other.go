//go:build !unix

package resp

import (
	"net"
	"time"
)

// pollSink exists on Unix only.
type pollSink struct{}

func newSink(net.Conn) *pollSink { return nil }

func (*pollSink) write([]byte) (int, error) { panic("there is none") }
func (*pollSink) tryWrite([]byte, bool) int { panic("there is none") }

func (s *Server) wakesMonitor(time.Time) bool { return false }
