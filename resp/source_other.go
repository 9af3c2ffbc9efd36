//go:build !unix

package resp

import "net"

// newSource returns the source for nc.
func newSource(nc net.Conn) source { return newStreamSource(nc) }
