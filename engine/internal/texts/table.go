// Package texts bounds the memory of texts that are noted beside other things. All texts of a table together have a bounded
// size: the oldest is dropped for a new one.
package texts

import "github.com/faisca/fila/engine/internal/intrusive"

// overhead is what a text takes beside its bytes.
const overhead = 64

// Text is the place of a text, which its owner embeds. The zero Text is empty.
type Text struct {
	intrusive.Links[Text]

	text string
}

// String returns the text, "" if it is empty or was dropped.
func (x *Text) String() string { return x.text }

// Table holds the texts that are not empty, in the order in which they were set.
type Table struct {
	Max int64 // bytes of all texts

	list  intrusive.List[Text, *Text]
	bytes int64
}

// Set replaces a text, which becomes the newest, and drops the oldest ones until all fit. "" empties it. A text that
// exceeds Max is dropped at once.
func (t *Table) Set(x *Text, text string) {
	if x.text != "" {
		t.drop(x)
	}
	if text == "" {
		return
	}
	x.text = text
	t.list.PushBack(x)
	for t.bytes += size(x); t.bytes > t.Max; {
		t.drop(t.list.Head())
	}
}

// Bytes returns what the texts take.
func (t *Table) Bytes() int64 { return t.bytes }

// Len returns the number of texts.
func (t *Table) Len() int { return t.list.Len() }

func (t *Table) drop(x *Text) {
	t.list.Remove(x)
	t.bytes -= size(x)
	x.text = ""
}

func size(x *Text) int64 { return int64(len(x.text)) + overhead }
