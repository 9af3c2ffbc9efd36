package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/faisca/fila/engine"
)

// abandonedAfter is the time after which a reading that no scrape has advanced is given up: all
// of its clients have left.
const abandonedAfter = time.Second

// reading is the engine's figures at about one moment. It is collected by the scrapes that
// share it, in slices of turns, and does not change once it is done:
//
//  1. all queues, those without a name as a sum
//  2. what is shown of each queue, and which of its keys have places
//  3. queues that are gone lose their names
//  4. the keys with places
//  5. the throttles
//  6. the budgets
//  7. the engine itself
type reading struct {
	collector *Collector
	request   engine.Figures
	advanced  time.Time
	step, at  int
	cursor    uint64
	missing   []string
	top       *top     // nil: the collection of these names has not begun
	busy      *busiest // of throttles of patterns; nil: the collection has not begun
	names     []string // that were chosen
	done      bool

	page      engine.FiguresPage
	queues    []queueSample
	keys      []keyOf
	others    tally
	throttles []throttleSample
	budgets   []budgetSample
	engine    engine.Stats // without the sums over queues
	leftOut   struct{ queues, keys, throttles, budgets int64 }
}

// queueSample is a named queue at one moment.
type queueSample struct {
	*engine.QueueFigures
	shown tally
	keys  []keySample
}

// keyOf is a key that is to be described.
type keyOf struct {
	queue int // index
	key   string
	place *place
}

// Work of a step in units of about a microsecond.
const (
	queueUnits    = 6
	keyUnits      = 4
	throttleUnits = 16 // of a page
	instanceUnits = 16 // of a page of instancePage, which a scrape walks all of
	instancePage  = 256
	budgetUnits   = 2 // of a page
	namesPage     = 32
)

// advance collects as far as the budget of the turn lasts. It returns engine.ErrWouldBlock if
// it continues in a later turn.
func (r *reading) advance(tx *engine.Tx) error {
	r.advanced = tx.Now()
	steps := [...]func(*engine.Tx) error{r.readQueues, r.seeQueues, r.missQueues, r.readKeys, r.readThrottles, r.readInstances, r.readBudgets, r.readEngine}
	for ; r.step < len(steps); r.step, r.at = r.step+1, 0 {
		if err := steps[r.step](tx); err != nil {
			return err
		}
	}
	r.done = true
	return nil
}

func (r *reading) readQueues(tx *engine.Tx) (err error) {
	if r.page, err = tx.Figures(&r.request); err != nil {
		return err
	}
	r.request = engine.Figures{}
	r.queues = make([]queueSample, 0, len(r.page.Queues))
	return nil
}

// seeQueues takes over the queues with names.
func (r *reading) seeQueues(tx *engine.Tx) error {
	c := r.collector
	return tx.Each(&r.at, len(r.page.Queues), queueUnits, func(i int) {
		f := r.page.Queues[i]
		q := c.queues.see(f)
		c.chooseKeys(r.page.Now, q, f)
		r.queues = append(r.queues, queueSample{QueueFigures: f, shown: q.shown()})
	})
}

// missQueues frees the names of queues that are gone, and adds the others up.
func (r *reading) missQueues(tx *engine.Tx) error {
	s := &r.collector.queues
	if r.missing == nil {
		r.missing = s.missing()
	}
	err := tx.Each(&r.at, len(r.missing), queueUnits, func(i int) {
		created := time.Time{}
		if q, err := tx.QueueInfo(r.missing[i]); err == nil {
			created = q.CreatedAt
		}
		s.miss(r.missing[i], created)
	})
	if err != nil {
		return err
	}
	r.others = s.others(&r.page)
	s.read = r.page.Now
	r.leftOut.queues = int64(r.page.Summed)
	return nil
}

func (r *reading) readKeys(tx *engine.Tx) error {
	if r.keys == nil {
		r.keys = []keyOf{}
		for i := range r.queues {
			by := r.collector.queues.named[r.queues[i].Name].keys.by
			for _, key := range slices.Sorted(maps.Keys(by)) {
				r.keys = append(r.keys, keyOf{i, key, by[key]})
			}
		}
	}
	return tx.Each(&r.at, len(r.keys), keyUnits, func(i int) {
		k := &r.keys[i]
		q := &r.queues[k.queue]
		info, err := tx.Key(q.Name, k.key)
		if err != nil {
			return // the queue was deleted in this moment
		}
		if info.Depth > 0 {
			r.leftOut.keys--
		}
		q.keys = append(q.keys, keySample{key: k.key, info: info, delivered: k.place.counters[0].see(info.Delivered)})
	})
}

// walk has all throttles or budgets offered to top, a page at a time, and chooses those that have
// series. page offers a page, and returns the next cursor.
func (r *reading) walk(tx *engine.Tx, most int, p *places, units int, page func(cursor uint64) uint64) error {
	if r.names != nil {
		return nil
	}
	if r.top == nil {
		r.top = newTop(most, p)
	}
	for more := true; more; more = r.cursor != 0 {
		if err := tx.Each(&r.at, r.at+1, units, func(int) { r.cursor = page(r.cursor) }); err != nil {
			return err
		}
	}
	r.names, r.at = r.top.choose(r.page.Now), 0
	return nil
}

func (r *reading) readThrottles(tx *engine.Tx) error {
	c := r.collector
	if c.cfg.Throttles == 0 {
		return nil
	}
	every := func(string) bool { return true }
	err := r.walk(tx, c.cfg.Throttles, &c.throttles, throttleUnits, func(cursor uint64) uint64 {
		next, list := tx.Throttles(cursor, namesPage, false, every)
		for i := range list {
			r.top.offer(list[i].Key, list[i].Waiting)
		}
		return next
	})
	if err != nil {
		return err
	}
	err = tx.Each(&r.at, len(r.names), 1, func(i int) {
		if info, ok := tx.Throttle(r.names[i]); ok {
			r.throttles = append(r.throttles, c.throttles.by[info.Key].seeThrottle(&info))
		}
	})
	if err == nil {
		r.leftOut.throttles, r.top, r.names = r.top.leftOut(), nil, nil
	}
	return err
}

// readInstances chooses the throttles of patterns that have series, by the rule of keys, and reads them.
func (r *reading) readInstances(tx *engine.Tx) error {
	c := r.collector
	if c.cfg.Throttles == 0 {
		return nil
	}
	if r.names == nil {
		if r.busy == nil {
			r.busy = newBusiest(c.cfg.Throttles, &c.instances)
		}
		for more := true; more; more = r.cursor != 0 {
			if err := tx.Each(&r.at, r.at+1, instanceUnits, func(int) { r.cursor = tx.WalkInstances(r.cursor, instancePage, r.busy.offer) }); err != nil {
				return err
			}
		}
		r.names, r.at = r.busy.choose(r.page.Now), 0
	}
	err := tx.Each(&r.at, len(r.names), 1, func(i int) {
		info, ok := tx.Throttle(r.names[i])
		shown := func(t throttleSample) bool { return t.Key == info.Key } // a setting that went meanwhile
		if ok && info.Pattern != "" && !slices.ContainsFunc(r.throttles, shown) {
			r.throttles = append(r.throttles, c.instances.by[info.Key].seeThrottle(&info))
		}
	})
	if err == nil {
		r.names = nil
	}
	return err
}

func (r *reading) readBudgets(tx *engine.Tx) error {
	c := r.collector
	if c.cfg.Budgets == 0 {
		return nil
	}
	err := r.walk(tx, c.cfg.Budgets, &c.budgets, budgetUnits, func(cursor uint64) uint64 {
		return tx.BudgetNames(cursor, namesPage, r.top.offer)
	})
	if err != nil {
		return err
	}
	err = tx.Each(&r.at, len(r.names), 1, func(i int) {
		if info, ok := tx.Budget(r.names[i]); ok {
			r.budgets = append(r.budgets, c.budgets.by[info.Name].seeBudget(&info))
		}
	})
	if err == nil {
		r.leftOut.budgets, r.top, r.names = r.top.leftOut(), nil, nil
	}
	return err
}

func (r *reading) readEngine(tx *engine.Tx) error {
	r.engine = tx.Stats()
	r.leftOut.keys += r.engine.Keys
	return nil
}

// write writes the series of queues, throttles and budgets that the user may see, and of the engine.
func (r *reading) write(f *families, rights *Rights) {
	may := rights.Queue
	now, states := r.page.Now, r.page.States
	if may != nil {
		clear(states[:]) // of queues that the user does not see
	}
	for i := range r.queues {
		q := &r.queues[i]
		if may != nil && !may(q.Name) {
			continue
		}
		l := label(labelQueue, text(q.Name))
		writeQueue(f, q.QueueFigures, now, l)
		states[q.State.State]++
		q.shown.write(f, l, q.DeadLetter)
		for k := range q.keys {
			q.keys[k].write(f, l, now)
		}
	}
	if may == nil {
		l := label(labelQueue, "")
		writeQueue(f, &r.page.Sum, now, l)
		r.others.write(f, l, true)
	}
	for s, n := range states {
		f.number(queuesInState, n, label(labelState, engine.KeyState(s).String()))
	}
	if rights.Throttles {
		for i := range r.throttles {
			r.throttles[i].write(f, now)
		}
	}
	if rights.Budgets {
		for i := range r.budgets {
			r.budgets[i].write(f)
		}
	}
	r.collector.scripts.write(f, r.queues, may, now)
	f.number(leftOut, r.leftOut.queues, label(labelKind, "queue"))
	f.number(leftOut, r.leftOut.keys, label(labelKind, "key"))
	f.number(leftOut, r.leftOut.throttles, label(labelKind, "throttle"))
	f.number(leftOut, r.leftOut.budgets, label(labelKind, "budget"))
	writeEngine(f, &r.engine)
}

// writeQueue writes the gauges of a queue.
func writeQueue(f *families, q *engine.QueueFigures, now time.Time, l labels) {
	c := &q.Counts
	for _, s := range [...]struct {
		state string
		n     int64
	}{{engine.StatusReady, c.Ready}, {engine.StatusDelayed, c.Delayed}, {engine.StatusLeased, c.Leased}, {engine.StatusDead, c.Dead}} {
		f.number(queueMessages, s.n, l.with(labelState, s.state))
	}
	for i := range q.States {
		if n := q.States[i].Keys; n > 0 {
			f.number(queueKeys, n, l.with(labelState, engine.KeyState(i).String()))
		}
	}
	f.number(queueWaiters, c.Waiters, l)
	f.number(queueResultWaits, c.ResultWaits, l)
	f.value(queueOldestReady, age(now, q.OldestReady), l)
	if q.Name == "" {
		return
	}
	f.number(queueState, 1, l.with(labelState, q.State.State.String()))
	f.flag(queuePaused, q.PausedIn, l.with(labelSide, "in"))
	f.flag(queuePaused, q.PausedOut, l.with(labelSide, "out"))
	if q.DeadLetter {
		f.flag(queueRedriveRunning, q.Redriving, l)
	}
}

func writeEngine(f *families, s *engine.Stats) {
	f.number(blockedClients, s.Blocked, nil)
	f.flag(storeWritable, s.Writable, nil)
	f.count(engineTurns, s.Turns, nil)
	f.count(engineTasks, s.Tasks, nil)
	f.count(engineCommits, s.Commits, nil)
	f.count(engineRecoveries, s.Recoveries, nil)
	f.number(engineWindow, s.InMemory, nil)
	f.number(engineBodies, s.BodyBytes, nil)
	f.number(engineInstances, int64(s.Instances.Live), nil)
	f.number(engineInstancesEvicted, int64(s.Instances.Evicted), nil)
	f.number(crons, s.Crons, nil)
	f.number(cronsDead, s.DeadCrons, nil)
	f.number(budgets, s.Budgets, nil)
	f.number(keysWithoutCredit, s.Held, nil)
	f.count(cronTicks, s.Ticked, label(labelOutcome, "enqueued"))
	f.count(cronTicks, s.Missed, label(labelOutcome, "missed"))
	f.number(signals, s.Signals, nil)
	f.count(signalsEvicted, s.SignalsEvicted, nil)
	f.number(topics, s.Topics.Topics, nil)
	f.number(topicBindings, s.Topics.Bindings, nil)
	f.count(topicPublished, s.Topics.Published, nil)
	f.count(topicUnmatched, s.Topics.Unmatched, nil)
	f.count(topicCopies, s.Topics.Copies, nil)
	if at := s.Backup.LastAt; !at.IsZero() {
		f.value(backupLast, float64(at.UnixMilli())/1e3, nil)
	}
	f.count(backups, s.BackedUp, label(labelOutcome, "ok"))
	f.count(backups, s.FailedToBackUp, label(labelOutcome, "failed"))
}
