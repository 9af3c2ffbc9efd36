package engine

import "github.com/faisca/fila/engine/search"

// Jobs are off-loop jobs that run one after another.
type Jobs struct {
	jobs  []job
	reads bool // of windows

	// Search says that they may read much for a small result. One of those should run at a time: several would take
	// the processors from the loop and from the connections. When the engine stops they need not run, as the tasks that
	// wait for them are refused.
	Search bool
}

// Run runs the jobs and posts each result. Reads of windows share iterators as long as none fails.
func (j *Jobs) Run(store Store, post func(Call)) {
	if j.reads {
		readWindows(j.jobs, store, post)
		return
	}
	for _, r := range j.jobs {
		r.do(store)
		post(r)
	}
}

func readWindows(all []job, store Store, post func(Call)) {
	it := openWindows(all, store)
	for _, j := range all {
		if r, ok := j.(*read); !ok {
			j.do(store)
		} else if r.err = r.readKey(store, it); r.err != nil {
			it.Close()
			it = search.OpenKeys(store)
		}
		post(j)
	}
	it.Close()
}

// openWindows returns iterators for window reads. After a start, the first messages of all keys are read, in the order of
// the keys in the store.
func openWindows(all []job, store Store) search.Iterators {
	begins := make([][]byte, len(all))
	for i, j := range all {
		r, is := j.(*read)
		if !is || !r.first {
			return search.OpenKeys(store)
		}
		begins[i] = r.begin
	}
	return search.OpenNeighbours(store, begins)
}

// Jobs returns the jobs of a committed work, grouped so that a slow job delays only jobs of its kind:
//
//	ticks of recurring messages  a group for each round; there is one round at a time
//	hook decisions               a group for each queue, since scripts may be slow
//	window reads                 one group, since whole queues may wait for them
//	long lookups                 a group each
//	searches                     a group each
//	others                       one group
func (w *Work) Jobs() (groups []Jobs) {
	var windows, others []job
	var verdicts map[string][]job // by queue
	alone := func(j job, search bool) { groups = append(groups, Jobs{jobs: []job{j}, Search: search}) }
	for _, r := range w.jobs {
		switch r := r.(type) {
		case *cronRound:
			alone(r, false)
		case *verdict:
			if verdicts == nil {
				verdicts = map[string][]job{}
			}
			verdicts[r.msg.Queue] = append(verdicts[r.msg.Queue], r)
		case *read, *dueRead:
			windows = append(windows, r)
		default:
			if search := searches(r); search || takesLong(r) {
				alone(r, search)
			} else {
				others = append(others, r)
			}
		}
	}
	for _, all := range verdicts {
		groups = append(groups, Jobs{jobs: all})
	}
	if len(windows) > 0 {
		groups = append(groups, Jobs{jobs: windows, reads: true})
	}
	if len(others) > 0 {
		groups = append(groups, Jobs{jobs: others})
	}
	return groups
}

// searches reports whether a job may read much for a small result.
func searches(j job) bool {
	s, is := j.(searching)
	return is && s.searches()
}

// takesLong reports whether a job is a look-up that others should not wait for.
func takesLong(j job) bool {
	switch j := j.(type) {
	case *lookup:
		return j.work >= lookupLong
	case *resultLook:
		return j.work() >= lookupLong
	default:
		return false
	}
}
