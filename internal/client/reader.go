package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// errTooBig refuses a reply that takes more memory than was allowed.
var errTooBig = errors.New("the reply is larger than this client takes")

const (
	depthMax   = 32
	lineMax    = 64 << 10
	chunkBytes = 64 << 10 // a string grows by as much as has arrived, at least by this
	valueBytes = 48       // memory of a value beside its bytes
)

// reader reads frames of RESP3. It is bounded in memory and depth.
type reader struct {
	r        *bufio.Reader
	bytesMax int64
	left     int64 // of bytesMax, in the frame that is being read
}

// frame reads a reply or a push message. An error reply is a RefusalError as the error.
func (r *reader) frame() (push bool, v any, err error) {
	r.left = r.bytesMax
	v, kind, err := r.value(0)
	if err != nil {
		return false, nil, err
	}
	if refusal, ok := v.(RefusalError); ok {
		return false, nil, refusal
	}
	return kind == '>', v, nil
}

// value reads a value and returns the byte that it began with. A RefusalError is a value.
func (r *reader) value(depth int) (v any, kind byte, err error) {
	if depth > depthMax {
		return nil, 0, fmt.Errorf("the reply is more than %d levels deep", depthMax)
	}
	line, err := r.line()
	if err != nil {
		return nil, 0, err
	}
	if line == "" {
		return nil, 0, errors.New("an empty line is no reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', '(':
		return rest, kind, nil
	case '-':
		return refusal(rest), kind, nil
	case '_':
		return nil, kind, nil
	case '#', ':', ',':
		v, err = scalar(kind, rest)
		return v, kind, err
	case '|': // attributes are about the value that follows them
		if _, err := r.pairs(rest, depth); err != nil {
			return nil, 0, err
		}
		return r.value(depth + 1)
	case '$', '=', '!':
		v, err = r.text(kind, rest)
		return v, kind, err
	case '*', '~', '>':
		v, err = r.list(rest, depth)
		return v, kind, err
	case '%':
		v, err = r.pairs(rest, depth)
		return v, kind, err
	}
	return nil, 0, fmt.Errorf("%.40q is no reply", line)
}

func refusal(text string) RefusalError {
	code, rest, _ := strings.Cut(text, " ")
	return RefusalError{Code: code, Text: rest}
}

// scalar is a boolean, an integer or a double.
func scalar(kind byte, text string) (v any, err error) {
	switch {
	case kind == '#' && (text == "t" || text == "f"):
		return text == "t", nil
	case kind == ':':
		v, err = strconv.ParseInt(text, 10, 64)
	case kind == ',':
		v, err = strconv.ParseFloat(text, 64)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil {
		return nil, fmt.Errorf("%.40q is no reply", string(kind)+text)
	}
	return v, nil
}

// line reads up to CRLF, which it does not return.
func (r *reader) line() (string, error) {
	var b []byte
	for {
		part, err := r.r.ReadSlice('\n')
		if len(b)+len(part) > lineMax {
			return "", fmt.Errorf("a line of the reply is longer than %d bytes", lineMax)
		}
		b = append(b, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
	if len(b) < 2 || b[len(b)-2] != '\r' {
		return "", errors.New("a line of the reply does not end in CRLF")
	}
	if err := r.take(int64(len(b)) + valueBytes); err != nil {
		return "", err
	}
	return string(b[:len(b)-2]), nil
}

// take accounts for memory.
func (r *reader) take(n int64) error {
	if n > r.left {
		return fmt.Errorf("%w: %d bytes", errTooBig, r.bytesMax)
	}
	r.left -= n
	return nil
}

// length parses a count of bytes or elements; -1 is nil, as RESP2 has it.
func length(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < -1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%.40q is no length in a reply", text)
	}
	return int(n), nil
}

// text reads the bytes of a bulk, verbatim or bulk error reply.
func (r *reader) text(kind byte, size string) (any, error) {
	n, err := length(size)
	if err != nil || n < 0 {
		return nil, err
	}
	if err := r.take(int64(n)); err != nil {
		return nil, err
	}
	b, err := r.bytes(n)
	if err != nil {
		return nil, err
	}
	var end [2]byte
	if _, err := io.ReadFull(r.r, end[:]); err != nil {
		return nil, err
	}
	if string(end[:]) != "\r\n" {
		return nil, errors.New("a string of the reply does not end in CRLF")
	}
	s := string(b)
	switch kind {
	case '!':
		return refusal(s), nil
	case '=':
		if len(s) < 4 || s[3] != ':' {
			return nil, errors.New("a verbatim string of the reply does not begin with its format")
		}
		return s[4:], nil
	}
	return s, nil
}

// bytes reads n bytes into memory that grows as they arrive.
func (r *reader) bytes(n int) ([]byte, error) {
	b := make([]byte, 0, min(n, chunkBytes))
	for len(b) < n {
		at := len(b)
		more := min(n-at, max(at, chunkBytes))
		b = append(b, make([]byte, more)...)
		if _, err := io.ReadFull(r.r, b[at:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// list reads the elements of an array, a set or a push message.
func (r *reader) list(size string, depth int) (any, error) {
	n, err := length(size)
	if err != nil || n < 0 {
		return nil, err
	}
	list := make([]any, 0, min(n, 64))
	for range n {
		v, _, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// pairs reads the fields of a map.
func (r *reader) pairs(size string, depth int) (any, error) {
	n, err := length(size)
	if err != nil || n < 0 {
		return nil, err
	}
	m := make(Map, 0, min(n, 64))
	for range n {
		name, _, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		v, _, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		m = append(m, Field{Name: Text(name), Value: v})
	}
	return m, nil
}
