package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/internal/queueset"
)

// oracle judges a simulation only by the replies that its clients received.
type oracle struct {
	err      error
	now      time.Time
	attempts uint32                     // the MaxAttempts of a queue; 0: no limit
	own      map[ID]queueset.Optional   // of messages that have such a number of their own
	took     map[Receipt]map[string]int // throttles by cost of which a delivery has taken its cost: when that began
	began    int                        // the number of buckets that have begun to take costs
	tags     int

	unknown  map[string]bool       // enqueued, but not answered
	stored   map[string]*oracleMsg // enqueue answered, removal not answered
	gone     map[string]bool       // ack answered
	receipt  map[string]bool       // all receipts so far
	newest   map[string]ID         // of first deliveries, by queue and key
	handed   map[ID]bool           // delivered at least once, answered or not
	byID     map[ID]*oracleMsg
	ends     map[ID]time.Time      // expiry of messages with a TTL
	redrove  int64                 // time of the newest id at the last redrive
	names    map[string]oracleName // of messages, by tag
	known    map[string][]oracleName
	window   time.Duration
	lossy    bool               // deduplication ids may have been lost
	setBack  time.Duration      // by how much restarts have set the clock back
	follows  map[string]*bundle // enqueued by a transaction
	bundles  map[ID]*bundle     // acked by a transaction
	buckets  map[string]*oracleBucket
	holds    holdOracle
	adaptive limitOracle
	// newSince is the time of the last crash, in terms of ids: an older message may have
	// been leased without a reply.
	newSince  int64
	fenceBase uint64 // of the last start or recovery: leases since have greater delivery numbers
	look      lookOracle
	topics    topicOracle
	signals   signalOracle
	order     orderOracle
	results   resultOracle
	unique    uniqueOracle
	done      doneOracle
	replace   replaceOracle
	unsynced  []unsynced    // answers since the last sync
	nackTexts map[ID]string // of the last nack that was answered, by message
	nacks     int
}

type oracleMsg struct {
	extending   bool // its lease was extended, or may have been
	tag         string
	id          ID
	leaseUntil  time.Time // of the delivery that a client has; zero: none
	receipt     Receipt
	sure        bool // no crash since the delivery
	leasedIn    int  // order of the engine's decision to deliver it
	notBefore   time.Time
	extra       uint32 // explicit retries, which attempts do not limit
	asking      int    // acks without a reply so far
	perhapsGone bool   // an ack got no reply, or an error
	mayDie      bool   // an explicit nack with DEAD was sent
	purged      bool   // a purge may have removed it, or may still
	disturbed   bool   // a cancel was sent
	anyReceipt  bool   // a power loss may have brought back an older lease
	moving      int    // reschedules without a reply: it may be due at any of their times
	progress    string // of the delivery that a client has, as it was answered; "": none
}

func newOracle() oracle {
	return oracle{
		own: map[ID]queueset.Optional{}, took: map[Receipt]map[string]int{}, unknown: map[string]bool{}, stored: map[string]*oracleMsg{}, gone: map[string]bool{}, receipt: map[string]bool{},
		newest: map[string]ID{}, handed: map[ID]bool{}, buckets: map[string]*oracleBucket{}, byID: map[ID]*oracleMsg{},
		ends: map[ID]time.Time{}, names: map[string]oracleName{}, known: map[string][]oracleName{}, follows: map[string]*bundle{}, bundles: map[ID]*bundle{},
		nackTexts: map[ID]string{}, adaptive: newLimitOracle(), results: newResultOracle(), unique: newUniqueOracle(), replace: newReplaceOracle(), done: newDoneOracle(),
	}
}

func (o *oracle) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

func (o *oracle) newTag(queue, key string) string {
	o.tags++
	tag := fmt.Sprintf("%s/%s/%d", queue, key, o.tags)
	o.signals.asked(tag, signalEnqueued)
	return tag
}

func (o *oracle) enqueued(tag string, id ID, due time.Time) {
	o.trace("enqueued %s as %s", tag, id)
	delete(o.unknown, tag)
	o.signals.resolved(tag, signalEnqueued, true, o.now)
	if m := o.byID[id]; m != nil && m.tag != "" && m.tag != tag {
		o.fail("id %s was given twice", id)
	}
	m := o.byID[id] // the delivery may precede the reply to the enqueue
	if m == nil {
		m = &oracleMsg{tag: tag, id: id, notBefore: due}
		o.byID[id] = m
	}
	m.tag = tag
	o.look.ids = append(o.look.ids, id)
	o.unsynced = append(o.unsynced, unsynced{m: m, enqueued: true})
	if !o.gone[tag] {
		o.stored[tag] = m
	}
	o.seen(tag)
}

// delivered records a delivery that a client has received.
func (o *oracle) delivered(d *Delivery) {
	tag := tagOf(d.Queue, d.Payload())
	r := d.Receipt.String()
	o.trace("delivered %s of %s, attempt %d, receipt %s until %s", tag, d.Queue, d.Attempt, r, d.LeaseUntil.Format("15:04:05.000"))
	if o.receipt[r] {
		o.fail("receipt %s was given twice", r)
	}
	o.receipt[r] = true
	if o.gone[tag] {
		o.fail("%s was delivered after its ack was answered", tag)
	}
	if o.results.ended[tag] {
		o.fail("%s was delivered after a client was answered that it is done", tag)
	}
	if o.done.shown[d.Receipt.ID] {
		o.fail("%s was delivered after it was shown as done", tag)
	}
	if o.stored[tag] == nil && !o.unknown[tag] {
		o.fail("%s was delivered, and no client has enqueued it", tag)
	}
	o.seen(tag)
	o.topics.delivered(tag)
	m := o.byID[d.Receipt.ID]
	if m == nil {
		m = &oracleMsg{id: d.Receipt.ID}
		o.byID[d.Receipt.ID] = m
	}
	m.tag = tag
	o.gotUnique(m, d.Queue)
	m.perhapsGone, m.anyReceipt = o.beingPurged(tag), false
	before := d.Receipt.Fence <= o.fenceBase // a late reply: the lease began before the last recovery, and may be lost
	if d.Receipt.Fence < m.receipt.Fence && (before || !o.now.Before(d.LeaseUntil)) {
		return // this delivery has ended, and another has followed
	}
	if o.now.Before(m.leaseUntil) {
		o.fail("%s was delivered while another held it until %v, it is %v", tag, m.leaseUntil, o.now)
	}
	if end, ok := o.ends[d.Receipt.ID]; ok && !o.now.Add(o.setBack).Before(end) || m.mayDie && d.Queue == "a.dlq" {
		m.notBefore = time.Time{} // it has died while it waited for that
	}
	if o.now.Before(m.notBefore) {
		o.fail("%s was delivered before %v", tag, m.notBefore)
	}
	own, given := o.own[d.Receipt.ID].Value()
	most := uint64(o.attempts)
	if given {
		most = own
	}
	if most > 0 && uint64(d.Attempt) > most+uint64(m.extra) && (d.Queue == "a" || d.Queue == "b") {
		o.fail("%s was delivered as attempt %d of %d", tag, d.Attempt, most)
	}
	if _, mortal := o.ends[d.Receipt.ID]; given && own == 0 && d.Queue == "a.dlq" && !mortal && !m.mayDie {
		o.fail("%s is dead, and its attempts have no limit", tag)
	}
	if m.leaseUntil, m.receipt, m.sure = d.LeaseUntil, d.Receipt, !before; before {
		m.leaseUntil = time.Time{}
	}
	m.notBefore, m.progress = time.Time{}, ""
}

func (o *oracle) current(d *Delivery) *oracleMsg {
	if m := o.byID[d.Receipt.ID]; m != nil && (m.receipt == d.Receipt || m.anyReceipt) {
		return m
	}
	return nil
}

// maybeGone records that an ack was sent.
func (o *oracle) maybeGone(id ID) {
	if m := o.byID[id]; m != nil {
		m.asking++
		o.signals.asked(m.tag, signalAcked)
	}
}

// mayEnd records that the end of a lease was requested; the reply may get lost.
func (o *oracle) mayEnd(d *Delivery) {
	if m := o.current(d); m != nil {
		m.leaseUntil = time.Time{}
	}
}

// mayRetry records an explicit retry, which attempts do not limit.
func (o *oracle) mayRetry(id ID) {
	if m := o.byID[id]; m != nil {
		m.extra++
	}
}

func (o *oracle) acked(d *Delivery, n int, err error) {
	tag := tagOf(d.Queue, d.Payload())
	m := o.byID[d.Receipt.ID]
	m.asking = max(m.asking-1, 0)
	o.trace("acked %d %s with %s: %v", n, tag, d.Receipt, err)
	if err != nil {
		if !refusal(err) {
			o.fail("ack: %v", err)
		}
		m.perhapsGone = true
		return
	}
	o.signals.resolved(tag, signalAcked, n == 1 && d.Queue == "b", o.now)
	switch n {
	case 1:
		if o.current(d) == nil {
			o.fail("%s was acked with a receipt whose lease is over", tag)
		}
		if o.gone[tag] {
			o.fail("%s was acked twice", tag)
		}
		o.gone[tag] = true
		o.doneUnique(tag)
		delete(o.stored, tag)
		o.ended(m, d)
		o.unsynced = append(o.unsynced, unsynced{m: m, acked: true})
		m.leaseUntil = time.Time{}
	case 0:
		if m := o.current(d); m != nil && !o.taken(m) && o.now.Before(m.leaseUntil) {
			o.fail("%s was not acked although its lease lasts until %v", tag, m.leaseUntil)
		}
	default:
		o.fail("one receipt acked %d messages", n)
	}
}

func (o *oracle) nacked(d *Delivery, res NackResult, err error) {
	m := o.byID[d.Receipt.ID]
	o.trace("nacked %s: %+v %v", d.Receipt, res, err)
	if err != nil {
		if !errors.Is(err, ErrLeaseLost) && !refusal(err) {
			o.fail("nack: %v", err)
		}
		if errors.Is(err, ErrLeaseLost) && o.current(d) != nil && !o.taken(m) && o.now.Before(d.LeaseUntil) && m.sure {
			o.fail("nack: a lease that lasts until %v was lost", d.LeaseUntil)
		}
		return
	}
	if o.current(d) == nil {
		o.fail("%s was nacked with a receipt whose lease is over", d.Receipt)
	}
	m.leaseUntil = time.Time{}
	o.unsynced = append(o.unsynced, unsynced{m: m})
	if res.Action == ActionRetry && m.moving == 0 {
		m.notBefore = res.ReadyAt
	}
}

// retried is called when the engine decides on a nack, answered or not: a message whose TTL
// has passed must not be retried. decided judges those that were redriven.
func (o *oracle) retried(d *Delivery, res NackResult, err error, now time.Time) {
	id := d.Receipt.ID
	end, ends := o.ends[id]
	if err == nil && res.Action == ActionRetry && ends && !now.Before(end) && (d.Queue == "a" || d.Queue == "b") && id.Nanos() > o.redrove {
		o.fail("%s is tried again at %v, its time to live ended at %v", id, now, end)
	}
}

func (o *oracle) extended(d *Delivery, until time.Time, err error) bool {
	if err != nil {
		return false
	}
	m := o.current(d)
	if m == nil {
		o.fail("%s was extended although its lease is over", d.Receipt)
		return false
	}
	m.leaseUntil, m.receipt, m.anyReceipt = until, d.Receipt, false // the live delivery
	return true
}

func (o *oracle) released(d *Delivery, n int, err error) {
	m := o.current(d)
	if err != nil || n == 0 {
		return
	}
	if m == nil {
		o.fail("%s was released although its lease is over", d.Receipt)
		return
	}
	m.leaseUntil = time.Time{}
}

// redriven records that messages may have returned from a dead-letter queue, without a TTL.
// Ids tell which: the clock may be set back, and ids run ahead of it.
func (o *oracle) redriven(c *core) { o.redrove = max(o.redrove, c.ids.last) }

// decided is called when the engine delivers a message, answered or not: the first
// deliveries of a key must be in the order of enqueue.
func (o *oracle) decided(d *Delivery, now time.Time) {
	id := d.Receipt.ID
	end, ends := o.ends[id]
	over := ends && !now.Before(end)
	if over && (d.Queue == "a" || d.Queue == "b") && id.Nanos() > o.redrove {
		o.fail("%s was delivered at %v, its time to live ended at %v", id, now, end)
	}
	if over {
		return // dead-lettered before its first delivery, or redriven since
	}
	if o.handed[id] || id.Nanos() <= o.newSince {
		return
	}
	o.handed[id] = true
	line := fmt.Sprint(d.Queue, "/", d.Key, "/", id.Rank())
	newest := o.newest[line]
	if id.String() < newest.String() {
		o.fail("%s overtook an older message of %s", newest, line)
	}
	o.newest[line] = id
}

// oracleBucket is the upper bound of what a throttle may have admitted.
type oracleBucket struct {
	tokens, rate, burst float64
	byCost              bool
	concurrency         int64
	at                  time.Time
	set                 dispatch.Limits
	began               int  // tells the times apart at which it began to take costs
	lowered             bool // more slots may be in use than the limit since it was lowered
}

// throttlesSet has the buckets of the throttle keys that a setting or pattern of a name may be about be those that hold now.
func (o *oracle) throttlesSet(c *core, name string, now time.Time) {
	for i := range 3 {
		key := fmt.Sprint("t", i)
		if prefix, is := strings.CutSuffix(name, "*"); key != name && (!is || !strings.HasPrefix(key, prefix)) {
			continue
		}
		set := c.order.Inside().Limits(key)
		if b := o.buckets[key]; b == nil || set == nil || b.set != *set {
			o.throttleSet(key, set, now)
		}
	}
}

func (o *oracle) throttleSet(name string, set *dispatch.Limits, now time.Time) {
	if set == nil {
		delete(o.buckets, name)
		return
	}
	burst, began := float64(set.Burst), o.began
	if old := o.buckets[name]; old != nil && old.byCost {
		began = old.began
	} else {
		o.began++
		began++
	}
	o.buckets[name] = &oracleBucket{
		began: began, set: *set, tokens: burst, rate: set.Rate, burst: burst, byCost: set.ByCost, concurrency: int64(set.Concurrency), at: now, lowered: true,
	}
}

// need is how many tokens a message of that cost takes.
func (b *oracleBucket) need(cost uint32) float64 {
	if b.byCost {
		return float64(cost)
	}
	return 1
}

// passed records a delivery: all throttles of the message must have admitted it.
func (o *oracle) passed(throttles []string, cost uint32, now time.Time) {
	for _, name := range throttles {
		b := o.buckets[name]
		if b == nil || b.rate == 0 {
			continue
		}
		b.fill(now)
		if more := min(b.need(cost), b.burst) - b.tokens; more > 1e-6 {
			o.fail("throttle %s let pass %f more than it may", name, more)
		}
		b.tokens -= b.need(cost)
	}
}

// fill adds the tokens that have come since the last change.
func (b *oracleBucket) fill(now time.Time) {
	if now.After(b.at) {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.rate)
		b.at = now
	}
}

func (o *oracle) refunded(throttles []string, cost uint32) {
	for _, name := range throttles {
		if b := o.buckets[name]; b != nil {
			b.tokens = min(b.burst, b.tokens+b.need(cost))
		}
	}
}

// limits compares the leases of each throttle with its limit.
func (o *oracle) limits(c *core) {
	for name, b := range o.buckets {
		t, ok := c.order.Inside().Throttle(name)
		if !ok || b.concurrency == 0 {
			continue
		}
		switch {
		case t.InUse <= b.concurrency:
			b.lowered = false
		case c.health.failed != nil:
			b.lowered = true // leases are live again whose ends were not written
		case !b.lowered:
			o.fail("%d leases are held of throttle %s, which allows %d", t.InUse, name, b.concurrency)
		}
	}
}

// crashed records a crash: tasks that have no reply will not go on.
func (o *oracle) crashed(now time.Time, c *core) {
	o.recovered(now, c)
	for _, prefix := range o.look.purging {
		o.purge(prefix)
	}
	o.look.purging = nil
	o.signals.crashed()
	for _, m := range o.byID {
		m.perhapsGone, m.asking = m.perhapsGone || m.asking > 0, 0
	}
}

// recovered records a crash or a recovery in place: leases without a record may be lost, and with
// them the order of first deliveries so far. Tasks that read the store at a recovery in place go
// on afterwards: purges, acks and cancels without a reply may still remove messages.
func (o *oracle) recovered(now time.Time, c *core) {
	o.newSince, o.fenceBase = c.ids.last, c.fenceBase()
	clear(o.buckets) // full again; a setting without a reply may exist or not
	o.throttlesSet(c, "t*", now)
	for _, m := range o.byID {
		if !o.now.Before(m.notBefore) {
			m.notBefore = time.Time{} // it was due before the clock changed
		}
	}
	o.now = now
	o.trace("crashed or mended")
	o.signals.recovered()
	o.look.walks = nil
	o.unsynced = nil // a start syncs the store
	clear(o.newest)
	clear(o.unique.freed)
	for _, m := range o.byID {
		m.moving = 0
		m.leaseUntil = time.Time{}
		m.sure = false
		if o.now.Before(m.notBefore) && now.Add(30*time.Minute).Before(m.notBefore) {
			m.notBefore = time.Time{} // the clock was set back
		}
	}
}

// overdue finds leases that expired long ago and consumers that wait beside ready messages.
func (o *oracle) overdue(s *Stepper) {
	c := s.core
	for _, m := range c.leases.byID {
		if m.until < c.now-int64(time.Second) {
			o.fail("a lease of %s ended %v ago and is still held", m.id, time.Duration(c.now-m.until))
		}
	}
	for _, q := range c.queues.byName {
		if q.order.HasDemand() && q.order.Loaded() {
			o.fail("%d clients wait for %q, which has messages", q.waiters.Len(), q.name)
		}
	}
}

// taken reports whether a message may have been removed during its lease.
func (o *oracle) taken(m *oracleMsg) bool { return m.disturbed || m.purged || o.beingPurged(m.tag) }

// beingPurged reports whether a purge under way may remove a message.
func (o *oracle) beingPurged(tag string) bool {
	return slices.ContainsFunc(o.look.purging, func(prefix string) bool { return strings.HasPrefix(tag, prefix) })
}

// atEnd checks that no acknowledged message is missing.
func (o *oracle) atEnd(s *Stepper) error {
	for tag, m := range o.stored {
		if o.beingPurged(tag) || m.perhapsGone || m.asking > 0 {
			continue
		}
		o.fail("%s was acknowledged and is lost", tag)
	}
	var st Stats
	s.Do(&Task{Call: callFunc(func(tx *Tx) error { st = tx.Stats(); return nil })})
	if st.Ready != 0 || st.Delayed != 0 || st.Leased != 0 || st.Dead != 0 || st.Counting {
		o.fail("all was acked, and messages are counted: %+v", st.Counts)
	}
	return o.err
}

func (o *oracle) trace(format string, args ...any) {
	if *simStory {
		fmt.Printf("%s "+format+"\n", append([]any{o.now.Format("15:04:05.000")}, args...)...)
	}
}

// refusal reports whether an error is one that injected faults may cause.
func refusal(err error) bool {
	return errors.Is(err, ErrMisconf) || errors.Is(err, ErrStopped) || errors.Is(err, ErrTakeover) || errors.Is(err, ErrDeposed)
}
