package intrusive

// Links are a list's fields in its elements. An element embeds them, so it is in one list
// at a time, and to add or remove it allocates nothing.
type Links[T any] struct{ prev, next *T }

// Next returns the element behind this one, nil if it is the last one or in no list.
func (l *Links[T]) Next() *T { return l.next }

// Prev returns the element before this one, nil if it is the first one or in no list.
func (l *Links[T]) Prev() *T { return l.prev }

func (l *Links[T]) link() *Links[T] { return l }

// linked is a pointer to an element of a list.
type linked[T any] interface {
	*T
	link() *Links[T]
}

// List is a doubly linked list of elements that embed [Links]. The zero value is empty.
type List[T any, P linked[T]] struct {
	first, last *T
	n           int
}

// Head returns the first element, nil if there is none or no list.
func (l *List[T, P]) Head() *T {
	if l == nil {
		return nil
	}
	return l.first
}

// Len returns the number of elements.
func (l *List[T, P]) Len() int { return l.n }

// PushBack adds an element that is in no list.
func (l *List[T, P]) PushBack(e *T) {
	in := P(e).link()
	in.prev, in.next = l.last, nil
	if l.last != nil {
		P(l.last).link().next = e
	} else {
		l.first = e
	}
	l.last = e
	l.n++
}

// Remove takes an element out; it must be inside.
func (l *List[T, P]) Remove(e *T) {
	in := P(e).link()
	if in.prev != nil {
		P(in.prev).link().next = in.next
	} else {
		l.first = in.next
	}
	if in.next != nil {
		P(in.next).link().prev = in.prev
	} else {
		l.last = in.prev
	}
	in.prev, in.next = nil, nil
	l.n--
}
