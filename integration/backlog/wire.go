package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// wire is one connection, with as little between the program and the socket as
// can be: on a machine with few cores a client library's share would be taken
// from the broker that is measured.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(addr string) (*wire, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wire{conn: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

// dialAll connects n times, or not at all.
func dialAll(addr string, n int) ([]*wire, error) {
	wires := make([]*wire, 0, n)
	for range n {
		w, err := dial(addr)
		if err != nil {
			closeAll(wires)
			return nil, err
		}
		wires = append(wires, w)
	}
	return wires, nil
}

func closeAll(wires []*wire) {
	for _, w := range wires {
		w.conn.Close()
	}
}

// appendCommand appends a command as clients send it.
func appendCommand(dst []byte, args ...string) []byte {
	dst = append(strconv.AppendInt(append(dst, '*'), int64(len(args)), 10), '\r', '\n')
	for _, a := range args {
		dst = append(strconv.AppendInt(append(dst, '$'), int64(len(a)), 10), '\r', '\n')
		dst = append(append(dst, a...), '\r', '\n')
	}
	return dst
}

// refusal is an error reply.
type refusal string

func (e refusal) Error() string { return string(e) }

// do sends one command and returns its reply.
func (w *wire) do(args ...string) (any, error) {
	if _, err := w.conn.Write(appendCommand(nil, args...)); err != nil {
		return nil, err
	}
	return w.reply()
}

// reply reads a reply of RESP2: an int64, a string, a []any, nil or a refusal.
func (w *wire) reply() (any, error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, fmt.Errorf("an empty line is no reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, refusal(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || kind == ':' {
		return n, err
	}
	if n < 0 {
		return nil, nil
	}
	if kind == '$' {
		body := make([]byte, n+2)
		_, err := io.ReadFull(w.r, body)
		return string(body[:n]), err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = w.reply(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// payloads makes messages that do not compress and differ from each other, as a
// store's worst case.
type payloads struct {
	noise []byte
	size  int
}

// noiseBits is how much noise payloads are cut from, as a power of two.
const noiseBits = 20

func newPayloads(size int) *payloads {
	noise := make([]byte, 1<<noiseBits+size)
	chance := rand.NewChaCha8([32]byte{})
	_, _ = chance.Read(noise) // never fails
	return &payloads{noise: noise, size: size}
}

// payload is the n-th; its first 8 bytes are n.
func (p *payloads) payload(n int64, into []byte) []byte {
	// Neighbours in the store must not overlap in the noise, or they compress.
	at := uint64(n) * 0x9E3779B97F4A7C15 >> (64 - noiseBits)
	into = append(into[:0], p.noise[at:at+uint64(p.size)]...)
	binary.BigEndian.PutUint64(into, uint64(n))
	return into
}
