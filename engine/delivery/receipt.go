package delivery

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/storage"
)

// Receipt identifies one delivery of a message. Once the lease of that delivery is over, the
// receipt is invalid for good.
type Receipt struct {
	ID storage.ID
	// Fence is the delivery number. It increases with each delivery of the message, and with
	// each start of the broker.
	Fence uint64
	// Bare is true if only a message id was given. It then refers to the current lease of the
	// message, which is meant for operators.
	Bare bool
	// Held is set by Ack and Release: the receipt had a live lease. Fence is then its
	// delivery number, also of a bare receipt.
	Held bool
}

// ParseReceipt parses "<message id>:<delivery number>", or a bare message id. Anything else
// is ErrBadReceipt.
func ParseReceipt(b []byte) (Receipt, error) {
	text, number, fenced := bytes.Cut(b, []byte{':'})
	id, err := storage.ParseID(text)
	switch {
	case err != nil:
	case !fenced:
		return Receipt{ID: id, Bare: true}, nil
	default:
		if fence, ok := parseFence(number); ok {
			return Receipt{ID: id, Fence: fence}, nil
		}
	}
	return Receipt{}, fmt.Errorf("%w: %.80q", refusals.ErrBadReceipt, b)
}

// parseFence accepts exactly what Append writes: no sign, no leading zero.
func parseFence(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '0' || b[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}

// Append appends the text form to dst.
func (r Receipt) Append(dst []byte) []byte {
	dst = AppendID(dst, r.ID)
	if r.Bare {
		return dst
	}
	return strconv.AppendUint(append(dst, ':'), r.Fence, 10)
}

// String returns the text form, which ParseReceipt parses.
func (r Receipt) String() string { return string(r.Append(nil)) }

// AppendID appends the text form of a message id to dst.
func AppendID(dst []byte, id storage.ID) []byte {
	dst, _ = id.AppendText(dst) // it never fails
	return dst
}
