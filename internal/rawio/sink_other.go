//go:build !unix

package rawio

import "net"

// Sink exists on Unix only.
type Sink struct{}

// NewSink returns nil: a connection's own Write is to be used.
func NewSink(net.Conn) *Sink { return nil }

// Write is never called.
func (*Sink) Write([]byte, bool) (int, error) { panic("there is none") }

// TryWrite is never called.
func (*Sink) TryWrite([]byte, bool) int { panic("there is none") }

// Conn returns nc.
func Conn(nc net.Conn) net.Conn { return nc }
