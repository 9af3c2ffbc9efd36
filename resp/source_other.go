//go:build !unix

package resp

import "net"

// newSource chooses how nc is read.
func newSource(nc net.Conn) source { return newStreamSource(nc) }
