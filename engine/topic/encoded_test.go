package topic

import (
	"bytes"
	"testing"

	"github.com/faisca/fila/storage"
)

// Each record is what the message would be if it were encoded alone.
func TestRecordsOfAPublishAreThoseOfTheirMessages(t *testing.T) {
	published := storage.Message{Meta: storage.Meta{Weight: 3}, Payload: []byte("payload"), Headers: []storage.Header{{Name: []byte("n"), Value: []byte("v")}}}
	m := published
	e, err := Encode(&m)
	if err != nil || !bytes.Equal(m.Payload, published.Payload) || len(m.Headers) != 1 || e.Len() <= len(e.Content()) {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, c := range []struct {
		set    storage.Message
		shared bool
	}{{storage.Message{Meta: published.Meta}, true}, {storage.Message{Meta: storage.Meta{Weight: 4, Throttles: []string{"t"}}}, false}, {storage.Message{}, false}} {
		record, shared := e.Record(&c.set)
		want := c.set
		want.Payload, want.Headers = published.Payload, published.Headers
		if !bytes.Equal(record, want.Append(nil)) || shared != c.shared {
			t.Errorf("%+v: %x is shared: %v", c.set.Meta, record, shared)
		}
	}
	if whole, _ := e.Record(&storage.Message{Meta: published.Meta}); &whole[0] != &e.Content()[0] {
		t.Error("the shared record is another copy")
	}
}
