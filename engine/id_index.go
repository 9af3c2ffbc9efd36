package engine

// idIndex leads from the hash of a fairness key that a message id holds to the keys
// that have it. Looking a message up by its id is rare, and making a key and ending it
// is not, so the keys of a bucket are a list through the keys themselves: to add one or
// to take one out touches its neighbours and nothing else, also where somebody has
// chosen names whose hashes meet. Who looks something up goes through a list.
type idIndex struct {
	buckets []*fairKey // the first of each; a power of two
	n       int
}

const (
	idBucketsFew = 32
	// idBuckets is how many there are from as many keys on: a million have lists of 244.
	idBuckets = 4096
)

func (x *idIndex) bucket(hash uint32) **fairKey { return &x.buckets[int(hash)&(len(x.buckets)-1)] }

// add puts a key in that is not in it.
func (x *idIndex) add(k *fairKey) {
	switch {
	case x.buckets == nil:
		x.buckets = make([]*fairKey, idBucketsFew)
	case x.n == idBuckets && len(x.buckets) < idBuckets:
		few := x.buckets
		x.buckets = make([]*fairKey, idBuckets)
		for _, each := range few {
			for each != nil {
				next := each.idNext
				x.put(each)
				each = next
			}
		}
	}
	x.put(k)
	x.n++
}

func (x *idIndex) put(k *fairKey) {
	first := x.bucket(k.idHash)
	k.idPrev, k.idNext = nil, *first
	if k.idNext != nil {
		k.idNext.idPrev = k
	}
	*first = k
}

// remove takes a key out that is in it.
func (x *idIndex) remove(k *fairKey) {
	if k.idPrev != nil {
		k.idPrev.idNext = k.idNext
	} else {
		*x.bucket(k.idHash) = k.idNext
	}
	if k.idNext != nil {
		k.idNext.idPrev = k.idPrev
	}
	k.idPrev, k.idNext = nil, nil
	if x.n--; x.n == 0 && len(x.buckets) > idBucketsFew {
		x.buckets = nil // what a busy day has needed is not kept
	}
}

// names returns the names of the keys with a hash.
func (x *idIndex) names(hash uint32) (names []string) {
	if x.n == 0 {
		return nil
	}
	for k := *x.bucket(hash); k != nil; k = k.idNext {
		if k.idHash == hash {
			names = append(names, k.name)
		}
	}
	return names
}
