//go:build !unix

package resp

import (
	"net"
	"time"
)

// pollSink is for sockets of Unix.
type pollSink struct{}

func newSink(net.Conn) *pollSink { return nil }

func (*pollSink) write([]byte) (int, error) { panic("there is none") }

func (s *Server) wakesMonitor(time.Time) bool { return false }
