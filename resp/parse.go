package resp

// numberBytesMax is the longest line accepted as a length.
const numberBytesMax = 32

// Redis' limits for a client that has not authenticated.
const (
	noAuthArgsMax = 10
	noAuthBulkMax = 16 << 10
)

// parse frames commands until limit of them are complete (nil), bytes are missing
// (errMore), or the input is invalid. It also stops with nil after an assembled command,
// and with errMore before a command that must be assembled while others wait to be passed
// on.
func (r *reader) parse(limit int) error {
	for len(r.s.counts) < limit {
		if r.need == 0 {
			if err := r.begin(); err != nil {
				return err
			}
			continue
		}
		if r.bulk < 0 {
			if err := r.bulkLength(); err != nil {
				return err
			}
		}
		if err := r.bulkBytes(); err != nil {
			return err
		}
		if r.need > 0 {
			continue
		}
		if err := r.finish(); err != nil || r.big != nil {
			return err
		}
	}
	return nil
}

// begin reads the header of the next command, or all of it if it is inline. Like Redis it
// skips empty commands.
func (r *reader) begin() error {
	if r.pos == r.end {
		return errMore
	}
	if r.s.buf[r.pos] != '*' {
		return r.inline()
	}
	n, next, err := number(r.s.buf[r.pos+1:r.end], errMultibulk, errMultibulkTooLong)
	if err != nil {
		return err
	}
	if n > int64(r.limits.ArgsMax) {
		return errMultibulk
	}
	if n > noAuthArgsMax && !r.authenticated {
		return errMultibulkNoAuth
	}
	r.pos += 1 + next
	if n <= 0 {
		r.skip()
		return nil
	}
	r.need, r.size, r.bulk = int(n), 0, -1
	return nil
}

// skip drops bytes that belong to no command.
func (r *reader) skip() {
	r.start = r.pos
	if len(r.s.counts) == 0 {
		r.base = r.pos
	}
}

// bulkLength reads the length of the next argument.
func (r *reader) bulkLength() error {
	if r.pos == r.end {
		return errMore
	}
	if c := r.s.buf[r.pos]; c != '$' {
		return protocolError("expected '$', got '" + string(rune(c)) + "'")
	}
	n, next, err := number(r.s.buf[r.pos+1:r.end], errBulk, errBulkTooLong)
	if err != nil {
		return err
	}
	if n < 0 || n > int64(r.limits.BulkBytesMax) {
		return errBulk
	}
	if n > noAuthBulkMax && !r.authenticated {
		return errBulkNoAuth
	}
	if r.size += int(n); r.size > r.limits.CommandBytesMax {
		return errCommandTooBig
	}
	r.pos += 1 + next
	r.bulk = int(n)
	if r.big != nil {
		r.big.begin(r.bulk)
	}
	return nil
}

// bulkBytes reads the argument and the line end after it.
func (r *reader) bulkBytes() error {
	if r.big == nil && r.pos-r.start+r.bulk+2 > len(r.s.buf) {
		if len(r.s.counts) > 0 {
			return errMore // pass those on first
		}
		r.assemble()
	}
	missing := r.bulk
	if r.big != nil {
		r.receive()
		missing -= len(r.big.cur)
	}
	if r.end-r.pos < missing+2 {
		return errMore
	}
	to := r.pos + missing
	if r.s.buf[to] != '\r' || r.s.buf[to+1] != '\n' {
		return errBulkEnd
	}
	if r.big != nil {
		r.big.finish()
	} else {
		r.s.spans = append(r.s.spans, span{int32(r.pos), int32(r.bulk)})
	}
	r.pos = to + 2
	r.bulk = -1
	r.need--
	return nil
}

// finish completes the command being read.
func (r *reader) finish() error {
	var name []byte
	if r.big != nil {
		name = r.big.args[0]
		r.base = r.pos
	} else {
		sp := r.s.spans[r.first]
		name = r.s.buf[sp.at : sp.at+sp.n]
	}
	if isHTTP(name) {
		r.big, r.need = nil, 0
		r.s.spans = r.s.spans[:r.first]
		return errHTTP
	}
	r.start = r.pos
	if r.big == nil {
		r.s.counts = append(r.s.counts, int32(len(r.s.spans)-r.first))
		r.first = len(r.s.spans)
	}
	return nil
}

// isHTTP recognises the first words of an HTTP request that a browser was tricked into
// sending.
func isHTTP(name []byte) bool {
	switch len(name) {
	case 4:
		return name[0]|0x20 == 'p' && foldEqual(name, "post")
	case 5:
		return name[4] == ':' && foldEqual(name, "host:")
	}
	return false
}

// foldEqual compares with a lower-case ASCII word of the same length.
func foldEqual(b []byte, lower string) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// number parses a decimal that ends in CRLF and returns the offset behind it. The result
// depends on the first wrong byte only, not on how many bytes have arrived. More than ten
// digits are an error.
func number(b []byte, bad, long protocolError) (n int64, next int, err error) {
	i, sign := 0, int64(1)
	if len(b) > 0 && b[0] == '-' {
		i, sign = 1, -1
	}
	from := i
	for ; i < len(b); i++ {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		if i >= numberBytesMax {
			return 0, 0, long
		}
		if i-from < 11 {
			n = n*10 + int64(c)
		}
	}
	if i == len(b) {
		return 0, 0, errMore
	}
	if b[i] != '\r' || i == from || i-from > 10 {
		return 0, 0, bad
	}
	if i+1 == len(b) {
		return 0, 0, errMore
	}
	if b[i+1] != '\n' {
		return 0, 0, bad
	}
	return sign * n, i + 2, nil
}
