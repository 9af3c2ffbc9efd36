package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/hook"
)

// seat is the engine of a node as its commands see it. A node has an engine only while it leads, so
// the engine changes during the life of its connections; the seat passes each call to the one in
// force, and tells the relay where the commands go that find none. Without replication the commands
// have the engine itself, and there is no seat.
//
//	            Seat(e), Run(e)               Hold
//	vacant ─────────────────────► seated ───────────────► held
//	  ▲                             │                       │ │
//	  └─────────── Vacate ──────────┴───────────────────────┘ └──► seated again: Seat(another)
//
// A session enters before it parses commands for the engine, and exits when it has submitted them. Hold
// returns when all that have entered have exited, and nothing enters after it; what a session cannot
// enter with goes to the relay, which waits for the next leader, whichever node that is. So a hand-over
// refuses nothing:
//
//	taking over   e := engine.New; seat.Seat(e); go e.Run. The commands enter when e.Ready is closed.
//	              If Run fails: seat.Vacate.
//	handing over  seat.Hold; e.Stop; wait for Run; transfer the leadership; seat.Vacate.
//	              If the transfer fails: seat.Seat(another engine).
//	ceasing       e.Halt; wait for Run; seat.Vacate. Calls in between are answered by the engine.
//	following     seat.Follow(node) whenever another leader is known, "" when none is.
//
// A node connects the parts like this: its seat has a relay.Router, whose Dial opens a link connection to
// a node and whose Serve is resp.Server.ServeRelayed; link connections that other nodes open are passed to
// relay.Serve with the same; commands.Config has the seat as Cluster and the router as Relay. At the end,
// commands.Handler.Close and relay.Router.Close end what is left.
//
// Other calls than those of sessions (Submit and the like) wait for an engine, for at most wait
// together; then they are refused with LOADING, and have had no effect.
//
// Seat, Hold, Vacate and Follow are called by one goroutine, and an engine has ended before the next is
// seated: its clients are those of the next one.
type seat struct {
	start time.Time     // origin of Elapsed, for the seat and every engine (engine.Config.Start)
	wait  time.Duration // cluster.wait_ms
	ready chan struct{} // closed: a node takes connections as soon as it has started
	relay *relay.Router // nil: commands do not go to other nodes

	state   atomic.Pointer[seating]
	inside  atomic.Int64  // sessions that have entered, and calls that are not submitted yet
	drained chan struct{} // capacity 1: inside may be 0 while the seat is held

	mu     sync.Mutex // guards what follows, and changes of state
	other  string     // the other node that leads; "": none is known to
	listen func([]engine.Event)
	wanted engine.EventKind
}

// seating is a state of a seat. It is immutable but for over.
type seating struct {
	engine *loop.Engine  // nil: vacant
	number uint64        // of the last engine that was seated, from 1
	held   bool          // no call enters
	latest *loop.Engine  // the last one that was seated, for what needs only its store; nil: none
	over   chan struct{} // closed when another state is in force
}

var (
	_ commands.Engine  = (*seat)(nil)
	_ commands.Cluster = (*seat)(nil)
)

// newSeat returns a vacant seat. Calls wait for an engine for at most wait.
func newSeat(wait time.Duration, router *relay.Router) *seat {
	s := &seat{start: time.Now(), wait: wait, ready: make(chan struct{}), relay: router, drained: make(chan struct{}, 1)}
	close(s.ready)
	s.state.Store(&seating{over: make(chan struct{})})
	return s
}

// Start is the Start of the configuration of every engine that is seated.
func (s *seat) Start() time.Time { return s.start }

// Seat puts an engine in force that has been made with Start and does not run yet. It gets the
// listener of events and the kinds that they are wanted of.
func (s *seat) Seat(e *loop.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen != nil {
		e.Listen(s.listen)
	}
	e.Want(s.wanted)
	s.other = ""
	now := &seating{engine: e, latest: e, number: s.state.Load().number + 1}
	s.change(now)
	s.route()
	go s.lead(now, s.listen)
}

// lead serves the commands that wait for a leader, once the engine has recovered. Subscribers are told
// that they may have missed events since another engine made them.
func (s *seat) lead(now *seating, listen func([]engine.Event)) {
	select {
	case <-now.engine.Ready():
	case <-now.over:
		return
	}
	if listen != nil {
		listen([]engine.Event{{Kind: engine.EventLost, Time: time.Now()}})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.route()
}

// Follow says that another node leads; "": none is known to, or this one does. It may come before this
// node has ceased.
func (s *seat) Follow(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = node
	s.route()
}

// route tells the relay where commands go that do not enter. The caller holds mu.
func (s *seat) route() {
	switch {
	case s.relay == nil:
	case s.state.Load().open():
		s.relay.Lead()
	case s.other != "":
		s.relay.Follow(s.other)
	default:
		s.relay.Lose()
	}
}

// Hold keeps back calls from the engine in force, and returns when those before have been submitted
// to it. Calls wait until Seat, or until they are refused.
func (s *seat) Hold() {
	s.mu.Lock()
	now := *s.state.Load()
	now.held = true
	s.change(&now)
	s.route()
	s.mu.Unlock()
	for s.inside.Load() > 0 {
		<-s.drained
	}
}

// Vacate takes the engine out of force, which has ended.
func (s *seat) Vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state.Load()
	s.change(&seating{latest: old.latest, number: old.number})
	s.route()
}

// newest returns the engine in force, or else the last one; nil: there was none.
func (s *seat) newest() *loop.Engine { return s.state.Load().latest }

func (s *seat) change(to *seating) {
	to.over = make(chan struct{})
	close(s.state.Swap(to).over)
}

// enter returns the engine in force and keeps Hold waiting until exit. It returns nil with the
// state if there is no engine that takes calls.
func (s *seat) enter() (*loop.Engine, *seating) {
	s.inside.Add(1)
	// Read after inside was raised: Hold changes the state before it reads inside.
	now := s.state.Load()
	if now.open() {
		return now.engine, now
	}
	s.exit()
	return nil, now
}

// Enter implements commands.Cluster.
func (s *seat) Enter() (e commands.Engine, leadership uint64) {
	if engine, now := s.enter(); engine != nil {
		return engine, now.number
	}
	return nil, 0
}

// Exit implements commands.Cluster.
func (s *seat) Exit() { s.exit() }

// exit ends enter, whose call has been submitted.
func (s *seat) exit() {
	if s.inside.Add(-1) > 0 || !s.state.Load().held {
		return
	}
	select {
	case s.drained <- struct{}{}:
	default:
	}
}

// open reports whether the engine takes calls.
func (n *seating) open() bool {
	if n.engine == nil || n.held {
		return false
	}
	select {
	case <-n.engine.Ready():
		return true
	default:
		return false
	}
}

// await is enter, but waits for an engine.
func (s *seat) await() (*loop.Engine, error) {
	e, now := s.enter()
	if e != nil {
		return e, nil
	}
	timeout := time.NewTimer(s.wait)
	defer timeout.Stop()
	for {
		var recovered <-chan struct{}
		if now.engine != nil && !now.held {
			recovered = now.engine.Ready()
		}
		select {
		case <-now.over:
		case <-recovered:
		case <-timeout.C:
			return nil, now.refusal()
		}
		if e, now = s.enter(); e != nil {
			return e, nil
		}
	}
}

// refusal is the error of a call that has waited in vain. Client libraries send it again.
func (n *seating) refusal() error {
	text := "no node of the cluster leads, try again in a moment"
	if n.engine != nil {
		text = "this node is taking over, try again in a moment"
	}
	return command.Refuse("LOADING", text)
}

// with calls do with the engine in force, once there is one.
func (s *seat) with(do func(*loop.Engine) error) error {
	e, err := s.await()
	if err != nil {
		return err
	}
	defer s.exit()
	return do(e)
}

// Ready is closed: calls wait for an engine where they need one.
func (s *seat) Ready() <-chan struct{} { return s.ready }

// Elapsed is that of every engine which is seated.
func (s *seat) Elapsed() time.Duration { return time.Since(s.start) }

// Submit passes tasks to the engine in force. Tasks of no client never wait: they undo what a client
// has not received, which the engine that has ended has undone or leaves to the end of leases.
func (s *seat) Submit(tasks []*engine.Task) {
	e, now := s.enter()
	if e == nil && tasks[0].Client == nil {
		engine.Refuse(tasks, now.refusal(), s.Elapsed())
		return
	}
	var err error
	if e == nil {
		if e, err = s.await(); err != nil {
			engine.Refuse(tasks, err, s.Elapsed())
			return
		}
	}
	e.Submit(tasks)
	s.exit()
}

// Settle waits until the results of a client's tasks are public.
func (s *seat) Settle(c *engine.Client, gone <-chan struct{}) error {
	e, err := s.await()
	if err != nil {
		return err
	}
	s.exit() // the wait is the engine's; Hold need not wait for it
	return e.Settle(c, gone)
}

// Leave reports that a client has disconnected. An engine that has ended needs no word of it.
func (s *seat) Leave(c *engine.Client) {
	if e := s.state.Load().engine; e != nil {
		e.Leave(c)
	}
}

// Prepare implements commands.Engine.
func (s *seat) Prepare(req *engine.Enqueue) error {
	return s.with(func(e *loop.Engine) error { return e.Prepare(req) })
}

// PrepareCron implements commands.Engine.
func (s *seat) PrepareCron(cr *engine.Cron) error {
	return s.with(func(e *loop.Engine) error { return e.PrepareCron(cr) })
}

// PreparePublish implements commands.Engine.
func (s *seat) PreparePublish(req *engine.Publish) error {
	return s.with(func(e *loop.Engine) error { return e.PreparePublish(req) })
}

// PrepareGroup implements commands.Engine.
func (s *seat) PrepareGroup(req *engine.OpenGroup) error {
	return s.with(func(e *loop.Engine) error { return e.PrepareGroup(req) })
}

// PrepareMove implements commands.Engine.
func (s *seat) PrepareMove(req *engine.BudgetMove) error {
	return s.with(func(e *loop.Engine) error { return e.PrepareMove(req) })
}

// CompileScript implements commands.Engine.
func (s *seat) CompileScript(by hook.Caller, kind hook.Kind, source string) (h hook.Hook, err error) {
	err = s.with(func(e *loop.Engine) error {
		h, err = e.CompileScript(by, kind, source)
		return err
	})
	return h, err
}

// ScriptSource implements commands.Engine.
func (s *seat) ScriptSource(queue string, kind hook.Kind, version string) (source string, err error) {
	err = s.with(func(e *loop.Engine) error {
		source, err = e.ScriptSource(queue, kind, version)
		return err
	})
	return source, err
}

// Snapshot returns that of the engine in force, or else of the last one: it never waits. It is empty
// if there was none.
func (s *seat) Snapshot() *engine.Snapshot {
	if e := s.state.Load().latest; e != nil {
		return e.Snapshot()
	}
	return &engine.Snapshot{}
}

// Load reads a message that has been delivered, also after the engine that delivered it has ended:
// its reply was decided before.
func (s *seat) Load(ds []*engine.Delivery) (read int, err error) {
	if e := s.state.Load().latest; e != nil {
		return e.Load(ds)
	}
	return 0, engine.ErrNoMessage
}

// LoadResult reads a value of a result, also after the engine that answered has ended.
func (s *seat) LoadResult(r *engine.Result) error {
	if e := s.state.Load().latest; e != nil {
		return e.LoadResult(r)
	}
	return engine.ErrNoRoom
}

// Listen sets the listener of every engine that is seated from now on.
func (s *seat) Listen(to func([]engine.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen = to
}

// Want sets the kinds of events of the engine in force and of those after it.
func (s *seat) Want(kinds engine.EventKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = kinds
	if e := s.state.Load().engine; e != nil {
		e.Want(kinds)
	}
}
