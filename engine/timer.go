package engine

// timed is what a timers heap holds. Its index lets it be taken out early.
type timed[T any] interface {
	comparable
	before(o T) bool
	index() *int
}

// timers is a binary heap by time. Entries of the same time leave in no
// particular but a reproducible order, unless before says more.
type timers[T timed[T]] struct{ h []T }

func (t *timers[T]) len() int { return len(t.h) }

// next returns the earliest entry; ok is false when there is none.
func (t *timers[T]) next() (e T, ok bool) {
	if len(t.h) == 0 {
		return e, false
	}
	return t.h[0], true
}

func (t *timers[T]) push(e T) {
	*e.index() = len(t.h)
	t.h = append(t.h, e)
	t.up(len(t.h) - 1)
}

// remove takes e out; it must be inside.
func (t *timers[T]) remove(e T) {
	i, last := *e.index(), len(t.h)-1
	var zero T
	moved := t.h[last]
	t.h[last] = zero
	t.h = t.h[:last]
	*e.index() = -1
	if i == last {
		return
	}
	t.h[i] = moved
	*moved.index() = i
	t.down(i)
	t.up(i)
}

// fix restores the order after the due time of e has changed.
func (t *timers[T]) fix(e T) {
	t.down(*e.index())
	t.up(*e.index())
}

// rebuild makes a heap of entries in any order.
func (t *timers[T]) rebuild(all []T) {
	t.h = all
	for i, e := range all {
		*e.index() = i
	}
	for i := len(all)/2 - 1; i >= 0; i-- {
		t.down(i)
	}
}

func (t *timers[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.h[i].before(t.h[parent]) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timers[T]) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(t.h) && t.h[c].before(t.h[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *timers[T]) swap(i, j int) {
	t.h[i], t.h[j] = t.h[j], t.h[i]
	*t.h[i].index(), *t.h[j].index() = i, j
}
