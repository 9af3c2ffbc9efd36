package group

import (
	"slices"
	"strconv"

	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/storage"
)

// messagesMax bounds the bytes of messages of groups in memory that the store has.
const messagesMax = 16 << 20

// messages are the messages of groups in memory: those of the newest groups, and of those that the store may not have.
type messages struct {
	held  map[uint64]held // by number of the group
	order []uint64        // numbers, the oldest first, also of some that are gone
	bytes int             // of what is held
}

// held is a storage.GroupMessage in memory.
type held struct {
	record []byte
	batch  uint64 // that writes it
}

// Open adds a group with a number above base, below which are those of before the last reset. Its message, of which it
// writes the record, stays in memory at least until the store has it.
func (t *Table) Open(head storage.Group, base uint64, message []byte, w writes.Batch) *Group {
	g := t.begin(head, base)
	w.Put(storage.State, storage.AppendGroupMessageKey(nil, g.number), message)
	t.messages.held[g.number] = held{message, w.Number}
	t.messages.order = append(t.messages.order, g.number)
	t.messages.bytes += len(message)
	return g
}

// drop drops the oldest messages that the store has if there are too many, and returns the work in units of some 500
// messages.
func (m *messages) drop(committed uint64) (work int) {
	if n := len(m.order); n > 2*len(m.held)+4096 { // most of them are gone
		work = n / 512
		m.order = slices.DeleteFunc(m.order, func(number uint64) bool { return m.held[number].record == nil })
	}
	for len(m.order) > 0 {
		number := m.order[0]
		one, is := m.held[number]
		if is && (m.bytes <= messagesMax || one.batch > committed) {
			return work
		}
		m.release(number)
		m.order = m.order[1:]
	}
	m.order = nil
	return work
}

// release drops the message of a group.
func (m *messages) release(number uint64) {
	m.bytes -= len(m.held[number].record)
	delete(m.held, number)
}

// Message is what is enqueued at the end of a group.
type Message struct {
	storage.GroupMessage
	Whole storage.Message // with the headers that say of which group it is
}

// Message returns the message of a group that is over, and how many bytes were read from the store: -1 if it was in memory.
func (t *Table) Message(g *Group, store storage.Reader) (m Message, read int, err error) {
	record := t.messages.held[g.number].record
	if read = -1; record == nil {
		if record, err = store.Get(storage.State, storage.AppendGroupMessageKey(nil, g.number)); err != nil {
			return m, 0, err
		}
		read = len(record)
	}
	if err := m.Decode(record); err != nil {
		return m, read, err
	}
	if err := m.Whole.Decode(m.GroupMessage.Message); err != nil {
		return m, read, err
	}
	m.Whole.Headers = append(slices.Clip(m.Whole.Headers),
		storage.Header{Name: []byte("fila-group"), Value: []byte(g.Name)},
		storage.Header{Name: []byte("fila-group-done"), Value: strconv.AppendInt(nil, g.Done, 10)},
		storage.Header{Name: []byte("fila-group-dead"), Value: strconv.AppendInt(nil, g.Dead, 10)})
	return m, read, nil
}
