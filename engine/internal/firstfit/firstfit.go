// Package firstfit has an ordered set whose elements each have a need, and finds the first
// element whose need is at most what there is: in O(log n), however many come before it and need
// more.
package firstfit

// Element is what a Tree holds. Precedes is a strict total order, which must not change while the
// element is in a tree.
type Element[T any] interface {
	comparable
	Precedes(o T) bool
}

// Tree is a treap: a binary tree in the order of its elements, balanced by random priorities that
// depend on nothing but the sequence of insertions. Each node knows the least need below it. The
// zero value is empty.
type Tree[T Element[T]] struct {
	root *node[T]
	len  int
	rng  uint64
}

type node[T Element[T]] struct {
	element     T
	need, least int64 // its own need; the least in its subtree
	priority    uint64
	left, right *node[T]
}

// Len returns the number of elements.
func (t *Tree[T]) Len() int { return t.len }

// Insert adds an element, which must not be in the tree.
func (t *Tree[T]) Insert(e T, need int64) {
	t.rng += 0x9e3779b97f4a7c15 // splitmix64
	z := t.rng
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	t.root = t.root.insert(&node[T]{element: e, need: need, least: need, priority: z ^ z>>31})
	t.len++
}

// Remove removes an element and reports whether it was in the tree.
func (t *Tree[T]) Remove(e T) bool {
	root, removed := t.root.remove(e)
	if t.root = root; removed {
		t.len--
	}
	return removed
}

// Need returns the need of an element; ok is false if it is not in the tree.
func (t *Tree[T]) Need(e T) (need int64, ok bool) {
	for n := t.root; n != nil; {
		switch {
		case n.element == e:
			return n.need, true
		case e.Precedes(n.element):
			n = n.left
		default:
			n = n.right
		}
	}
	return 0, false
}

// First returns the first element whose need is at most a bound.
func (t *Tree[T]) First(most int64) (e T, ok bool) {
	n := t.root
	if n == nil || n.least > most {
		return e, false
	}
	for {
		switch {
		case n.left != nil && n.left.least <= most:
			n = n.left
		case n.need <= most:
			return n.element, true
		default:
			n = n.right
		}
	}
}

// Least returns the least need of all elements; ok is false if there is none.
func (t *Tree[T]) Least() (need int64, ok bool) {
	if t.root == nil {
		return 0, false
	}
	return t.root.least, true
}

// All calls visit with each element and its need, in order.
func (t *Tree[T]) All(visit func(e T, need int64)) { t.root.all(visit) }

func (n *node[T]) all(visit func(e T, need int64)) {
	if n != nil {
		n.left.all(visit)
		visit(n.element, n.need)
		n.right.all(visit)
	}
}

// fix computes the least need of a subtree from its children.
func (n *node[T]) fix() *node[T] {
	n.least = n.need
	if n.left != nil {
		n.least = min(n.least, n.left.least)
	}
	if n.right != nil {
		n.least = min(n.least, n.right.least)
	}
	return n
}

func (n *node[T]) insert(add *node[T]) *node[T] {
	switch {
	case n == nil:
		return add
	case add.priority > n.priority:
		add.left, add.right = n.split(add.element)
		return add.fix()
	case add.element.Precedes(n.element):
		n.left = n.left.insert(add)
	default:
		n.right = n.right.insert(add)
	}
	return n.fix()
}

// split divides a subtree into the elements before e and the others.
func (n *node[T]) split(e T) (before, others *node[T]) {
	switch {
	case n == nil:
		return nil, nil
	case n.element.Precedes(e):
		n.right, others = n.right.split(e)
		return n.fix(), others
	default:
		before, n.left = n.left.split(e)
		return before, n.fix()
	}
}

func (n *node[T]) remove(e T) (rest *node[T], removed bool) {
	switch {
	case n == nil:
		return nil, false
	case n.element == e:
		return join(n.left, n.right), true
	case e.Precedes(n.element):
		n.left, removed = n.left.remove(e)
	default:
		n.right, removed = n.right.remove(e)
	}
	return n.fix(), removed
}

// join makes one subtree of two, of which all elements of the first come before the second.
func join[T Element[T]](a, b *node[T]) *node[T] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = join(a.right, b)
		return a.fix()
	default:
		b.left = join(a, b.left)
		return b.fix()
	}
}
