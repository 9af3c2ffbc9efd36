package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func receiptArgs() []Arg {
	return []Arg{{Name: "queue", Type: Key}, {Name: "receipt", Type: String, Multiple: true}}
}

// receipts is what a command on several leases needs, and their number after it.
type receipts struct {
	queue string
	list  []engine.Receipt
	one   [1]engine.Receipt // most commands name one
	n     int
}

func (b *receipts) parse(in *input) error {
	b.queue = in.text("queue")
	words := in.list("receipt")
	b.list = b.one[:0]
	if len(words) > 1 {
		b.list = make([]engine.Receipt, 0, len(words))
	}
	for _, word := range words {
		r, err := engine.ParseReceipt(word)
		if err != nil {
			return err
		}
		b.list = append(b.list, r)
	}
	return nil
}

// Render writes how many leases held.
func (b *receipts) Render(_ *Handler, w *resp.Writer) error {
	w.Int(int64(b.n))
	return nil
}

// Bytes is what waits for the loop.
func (b *receipts) Bytes() int { return 32 * len(b.list) }
