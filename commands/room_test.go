package commands

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the version of a script, not a secret
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/scripting"
	"github.com/faisca/fila/storage"
)

// floodBytes is what a client sends of a command without reading a reply.
const floodBytes = 64 << 10

// TestNoCommandTakesMoreThanItsRoom sends 64 KiB of the worst form of each command over a
// connection that reads nothing, and looks at what is set aside for the replies and at
// what they really take. Then it reads some of them and leaves, and nothing
// may be left.
func TestNoCommandTakesMoreThanItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t)
		defer f.end()
		forms := worstForms(f)
		for _, c := range everyCommand() {
			if c.Spec.Local == nil && c.Spec.Parse == nil {
				continue // a container
			}
			form, there := forms[c.Display]
			if delete(forms, c.Display); !there && c.Spec.Name != "HELP" {
				t.Errorf("%s: its worst form is missing", c.Display)
			}
			if !there {
				form = [][]string{strings.Fields(c.Display)}
			}
			f.flood(c.Display, form)
		}
		for name := range forms {
			t.Errorf("there is no %s", name)
		}
	})
}

// flooded is a broker with much to tell.
type flooded struct {
	t       *testing.T
	engine  *engine.Engine
	handler *Handler
	server  *resp.Server
	stopped chan error

	big   []string // ids of large messages
	small []string // of small ones
	conns []net.Conn
}

// The bounds in the test. A message is a quarter of what a connection may have.
const (
	floodedOutput  = 1 << 20
	floodedReplies = 4 << 20
	floodedPayload = 256 << 10
	floodedName    = 500
)

func newFlooded(t *testing.T) *flooded {
	t.Helper()
	cfg := engine.DefaultConfig()
	cfg.Limits.Payload = floodedPayload
	scripts := scripting.DefaultConfig()
	scripts.Limits = cfg.Limits.Limits
	var err error
	if cfg.Scripts, err = scripting.New(scripts); err != nil {
		t.Fatal(err)
	}
	f := &flooded{t: t, stopped: make(chan error, 1)}
	if f.engine, err = engine.New(cfg, storage.NewMemory()); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for i := range 100 {
		settings[fmt.Sprintf("setting.%d", i)] = strings.Repeat("v", 100)
	}
	f.handler, err = New(Config{
		Now: time.Now, SlowAfter: 0, SlowMax: 200, Settings: settings, Shutdown: func() {},
		Limits: Limits{Message: floodedPayload + 1<<10, Retained: floodedOutput, RetainedTotal: floodedReplies, LoadTotal: floodedReplies},
	}, f.engine)
	if err != nil {
		t.Fatal(err)
	}
	rc := resp.DefaultConfig()
	rc.OutputBytesMax, rc.ReplyBytesMax, rc.WriteTimeout = floodedOutput, floodedReplies, 1000*time.Hour
	if f.server, err = resp.NewServer(rc, f.handler); err != nil {
		t.Fatal(err)
	}
	go func() { f.stopped <- f.engine.Run(context.Background()) }()
	<-f.engine.Ready()
	f.fill()
	return f
}

func (f *flooded) end() {
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.engine.Stop()
	if err := <-f.stopped; err != nil {
		f.t.Error(err)
	}
	synctest.Wait()
}

// connect opens a connection.
func (f *flooded) connect() net.Conn {
	ours, theirs := net.Pipe()
	go f.server.ServeConn(theirs)
	f.conns = append(f.conns, ours)
	return ours
}

// scriptOfQueues is the on_failure hook of the queues.
func scriptOfQueues() string {
	return "function on_failure(msg) return { action = 'retry' } end --" + strings.Repeat("x", 60_000)
}

// longName is a name of nearly full length.
func longName(what string, i int) string {
	name := fmt.Sprintf("%s-%d-", what, i)
	return name + strings.Repeat("n", floodedName-len(name))
}

// fill makes the broker one with much to tell.
func (f *flooded) fill() {
	all := &bytes.Buffer{}
	add := func(args ...string) { all.Write(wire(args...)) }
	add("FILA.QUEUE", "CREATE", "big", "MAXATTEMPTS", "0")
	add("FILA.QUEUE", "CREATE", "small", "MAXATTEMPTS", "0")
	for i := range 50 {
		name := fmt.Sprintf("queue-%d-%s", i, strings.Repeat("q", 200))
		add("FILA.QUEUE", "CREATE", name, "NODLQ")
		add("FILA.SCRIPT", "LOAD", name, "ON_FAILURE", scriptOfQueues())
		add("FILA.CRON", "SET", longName("cron", i), "small", "@yearly", "payload", "KEY", longName("key", i))
		add("ACL", "SETUSER", fmt.Sprintf("user-%d", i), "on", ">secret", "~"+longName("pattern", i), "+@all")
	}
	for i := range 300 {
		add("FILA.THROTTLE", "SET", longName("throttle", i), "RATE", "1000")
		add("FILA.CONFIG", "SET", longName("config", i), strings.Repeat("v", 8<<10))
	}
	payload := strings.Repeat("x", floodedPayload)
	for i := range 24 {
		add("FILA.ENQUEUE", "big", payload, "KEY", longName("key", i))
	}
	for i := range 3000 {
		add("FILA.ENQUEUE", "small", "payload", "KEY", longName("key", i))
	}
	nc := f.connect()
	go func() { _, _ = nc.Write(all.Bytes()) }()
	c := &liveClient{conn: nc, in: bufio.NewReader(nc)}
	for range 2 + 50*4 + 600 + 24 + 3000 {
		r, err := c.read()
		if err != nil || r.kind == '-' {
			f.t.Fatalf("the scene is not set: %v %v", r, err)
		}
		switch {
		case r.kind == '$' && len(r.text) > 36+2 || r.kind != '$': // no id
		case len(f.big) < 24:
			f.big = append(f.big, r.text[:36])
		default:
			f.small = append(f.small, r.text[:36])
		}
	}
	for i := range 60 { // connections that have said much of themselves, and listen
		nc := f.connect()
		go func() { _, _ = io.Copy(io.Discard, nc) }()
		_, _ = nc.Write(wire("CLIENT", "SETNAME", strings.Repeat("c", nameBytesMax)))
		_, _ = nc.Write(wire("CLIENT", "SETINFO", "LIB-NAME", strings.Repeat("l", nameBytesMax)))
		_, _ = nc.Write(wire("SUBSCRIBE", longName("channel", i)))
	}
	synctest.Wait()
}

// wire is a command as it is sent.
func wire(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.Bytes()
}

// flood sends a form of a command again and again, first without reading.
func (f *flooded) flood(name string, form [][]string) {
	var once, all []byte
	for _, args := range form {
		once = append(once, wire(args...)...)
	}
	most := floodBytes
	if testing.Short() {
		most /= 4
	}
	for len(all) < most {
		all = append(all, once...)
	}
	before := heap()
	known := len(f.server.Conns())
	nc := f.connect()
	go func() { _, _ = nc.Write(all) }()
	synctest.Wait()
	if conns := f.server.Conns(); len(conns) > known { // else the command has ended it
		c := conns[len(conns)-1]
		reserved, pending := c.ReservedBytes(), c.Pending()
		took := heap() - before - int64(len(all))
		const slack = 512 << 10 // buffers of the connection
		if bound := reserved + int64(pending)*smallRoom + f.handler.retained.Used() + f.handler.loads.Used() + slack; took > bound {
			f.t.Errorf("%s: %d replies take %d KiB, and %d KiB are set aside for them", name, pending, took>>10, reserved>>10)
		}
		if reserved > floodedOutput && pending > 1 {
			f.t.Errorf("%s: %d KiB are set aside for %d replies, a connection may have %d", name, reserved>>10, pending, floodedOutput>>10)
		}
		if all := f.server.ReservedBytes(); all > max(floodedReplies, reserved) {
			f.t.Errorf("%s: %d KiB are set aside in all", name, all>>10)
		}
	}
	// The rest of the replies are dropped, or never asked for.
	const taken = 2 * floodedOutput
	go func() { _, _ = io.CopyN(io.Discard, nc, taken) }()
	synctest.Wait()
	_ = nc.Close()
	synctest.Wait()
	if f.server.ReservedBytes() != 0 { // the scripts of one read that are still to be loaded
		time.Sleep(10 * time.Minute)
		synctest.Wait()
	}
	if n := f.server.ReservedBytes(); n != 0 {
		f.t.Errorf("%s: %d bytes are set aside for nothing", name, n)
	}
	if h, l := f.handler.retained.Used(), f.handler.loads.Used(); h != 0 || l != 0 {
		f.t.Errorf("%s: %d bytes of leased messages are counted and %d of those read, and there are none", name, h, l)
	}
	time.Sleep(10 * time.Minute) // leases end
	synctest.Wait()
}

// heap is what is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools keep
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // memory
}

// worstForms are the forms of each command that take most, of what a broker may be made
// to tell.
func worstForms(f *flooded) map[string][][]string {
	many := func(n int, words ...string) []string { return slices.Repeat(words, n) }
	one := func(line string, more ...string) [][]string { return [][]string{append(strings.Fields(line), more...)} }
	name := longName("key", 7)
	value := strings.Repeat("v", 8<<10)
	source := "function on_failure(msg) return { action = 'retry' } end --" + strings.Repeat("x", 20_000)
	loaded := sha1.Sum([]byte(scriptOfQueues())) //nolint:gosec // the version of a script, not a secret
	version := hex.EncodeToString(loaded[:])
	id, receipts := f.big[0], make([]string, 0, 500)
	for _, id := range f.small[:500] {
		receipts = append(receipts, id+":1")
	}
	transaction := [][]string{{"MULTI"}}
	for range 50 {
		transaction = append(transaction, []string{"COMMAND", "INFO"}, []string{"FILA.GET", "small", f.small[0]}, []string{"FILA.KEYS", "small", "COUNT", "10"})
	}
	forms := map[string][][]string{
		"ACL CAT": one("ACL CAT fila"), "ACL DELUSER": one("ACL DELUSER", many(100, "nobody")...), "ACL DRYRUN": one("ACL DRYRUN default FILA.ACK", many(50, name)...),
		"ACL GENPASS": one("ACL GENPASS 4096"), "ACL GETUSER": one("ACL GETUSER user-1"), "ACL LIST": one("ACL LIST"), "ACL LOAD": one("ACL LOAD"),
		"ACL LOG": one("ACL LOG 1000"), "ACL SAVE": one("ACL SAVE"), "ACL SETUSER": one("ACL SETUSER user-1 ~" + name), "ACL USERS": one("ACL USERS"),
		"ACL WHOAMI": one("ACL WHOAMI"), "FILA.WHOAMI": one("FILA.WHOAMI"), "ASKING": one("ASKING"), "AUTH": one("AUTH nobody secret"), "BGSAVE": one("BGSAVE"),
		"CLIENT CACHING": one("CLIENT CACHING YES"), "CLIENT CAPA": one("CLIENT CAPA", many(100, "redirect")...), "CLIENT GETNAME": one("CLIENT GETNAME"),
		"CLIENT GETREDIR": one("CLIENT GETREDIR"), "CLIENT ID": one("CLIENT ID"), "CLIENT INFO": one("CLIENT INFO"),
		"CLIENT KILL": one("CLIENT KILL ID 999999"), "CLIENT LIST": one("CLIENT LIST"), "CLIENT NO-EVICT": one("CLIENT NO-EVICT ON"),
		"CLIENT NO-TOUCH": one("CLIENT NO-TOUCH ON"), "CLIENT REPLY": one("CLIENT REPLY ON"), "CLIENT SETINFO": one("CLIENT SETINFO LIB-NAME " + name),
		"CLIENT SETNAME": one("CLIENT SETNAME " + name), "CLIENT TRACKING": one("CLIENT TRACKING ON BCAST PREFIX " + name), "CLIENT TRACKINGINFO": one("CLIENT TRACKINGINFO"),
		"CLIENT UNBLOCK": one("CLIENT UNBLOCK 99999"), "CLUSTER": one("CLUSTER INFO"), "COMMAND": one("COMMAND"), "COMMAND COUNT": one("COMMAND COUNT"),
		"COMMAND DOCS": one("COMMAND DOCS", many(100, "fila.enqueue", "client")...), "COMMAND GETKEYS": one("COMMAND GETKEYS FILA.MLEASE 100", many(100, "q")...),
		"COMMAND GETKEYSANDFLAGS": one("COMMAND GETKEYSANDFLAGS FILA.MLEASE 100", many(100, "q")...), "COMMAND INFO": one("COMMAND INFO", many(100, "fila.queue")...),
		"COMMAND LIST": one("COMMAND LIST"), "CONFIG GET": one("CONFIG GET * *"), "CONFIG RESETSTAT": one("CONFIG RESETSTAT"), "CONFIG REWRITE": one("CONFIG REWRITE"),
		"CONFIG SET": one("CONFIG SET slowlog-max-len 200"), "DBSIZE": one("DBSIZE"), "DISCARD": one("DISCARD"), "ECHO": one("ECHO", value),
		"EXEC": append(transaction, []string{"EXEC"}), "EXISTS": one("EXISTS", many(500, name)...),
		"FILA.ACK": one("FILA.ACK small", receipts...), "FILA.BACKUP": one("FILA.BACKUP backup"), "FILA.BROWSE": append(one("FILA.BROWSE big COUNT 10000 PAYLOAD x"), strings.Fields("FILA.BROWSE big COUNT 10000 GROUP ERROR")),
		"FILA.CANCEL": one("FILA.CANCEL small", f.small[1000:1500]...), "FILA.CONFIG DEL": one("FILA.CONFIG DEL", many(100, "nothing")...),
		"FILA.CONFIG GET": one("FILA.CONFIG GET " + longName("config", 1)), "FILA.CONFIG LIST": one("FILA.CONFIG LIST COUNT 10000"),
		"FILA.CONFIG SET": one("FILA.CONFIG SET another", value), "FILA.CRON DEL": one("FILA.CRON DEL nothing"), "FILA.CRON GET": one("FILA.CRON GET " + longName("cron", 1)),
		"FILA.CRON LIST": one("FILA.CRON LIST COUNT 10000"), "FILA.CRON SET": one("FILA.CRON SET another small @yearly", value),
		"FILA.ENQUEUE": one("FILA.ENQUEUE small", value), "FILA.EXPLAIN": one("FILA.EXPLAIN small " + f.small[2000]),
		"FILA.EXTEND": one("FILA.EXTEND small " + receipts[0] + " 1000"), "FILA.GET": one("FILA.GET big " + id),
		"FILA.KEY DEL": one("FILA.KEY DEL small " + name), "FILA.KEY GET": one("FILA.KEY GET small " + name), "FILA.KEY PAUSE": one("FILA.KEY PAUSE small " + name),
		"FILA.KEY RESUME": one("FILA.KEY RESUME small " + name), "FILA.KEY SET": one("FILA.KEY SET small " + name + " WEIGHT 2"), "FILA.KEYS": append(one("FILA.KEYS small COUNT 10000"), strings.Fields("FILA.KEYS small COUNT 10000 BY DEPTH")),
		"FILA.FIGURES": one("FILA.FIGURES COUNT 10000"), "FILA.METRICS": one("FILA.METRICS"),
		"FILA.LEASE": one("FILA.LEASE big COUNT 10000"), "FILA.MLEASE": one("FILA.MLEASE 2 big big.dlq COUNT 10000"), "FILA.NACK": one("FILA.NACK small "+receipts[0]+" ERROR", value),
		"FILA.PURGE": one("FILA.PURGE small KEY nothing"), "FILA.QUEUE ALTER": one("FILA.QUEUE ALTER small VISIBILITY 1000"),
		"FILA.QUEUE APPLY":  one("FILA.QUEUE APPLY", `{"queues":[`+strings.Repeat(`{"name":"small"},`, 200)+`{"name":"big"}]}`, "DRYRUN"),
		"FILA.QUEUE CREATE": one("FILA.QUEUE CREATE small"), "FILA.QUEUE DELETE": one("FILA.QUEUE DELETE small"), "FILA.QUEUE INFO": one("FILA.QUEUE INFO small"),
		"FILA.QUEUE LIST": one("FILA.QUEUE LIST"), "FILA.QUEUE PAUSE": one("FILA.QUEUE PAUSE big.dlq"), "FILA.QUEUE RESUME": one("FILA.QUEUE RESUME big.dlq"),
		"FILA.REDRIVE": one("FILA.REDRIVE big.dlq ERROR", value), "FILA.RELEASE": one("FILA.RELEASE small", receipts...), "FILA.RESCHEDULE": one("FILA.RESCHEDULE big " + f.big[1] + " 1"),
		"FILA.SCRIPT DEL": one("FILA.SCRIPT DEL small ON_FAILURE"), "FILA.SCRIPT GET": one("FILA.SCRIPT GET queue-1-" + strings.Repeat("q", 200) + " ON_FAILURE"),
		"FILA.SCRIPT HISTORY":  one("FILA.SCRIPT HISTORY queue-1-" + strings.Repeat("q", 200) + " ON_FAILURE"),
		"FILA.SCRIPT ROLLBACK": one("FILA.SCRIPT ROLLBACK queue-1-" + strings.Repeat("q", 200) + " ON_FAILURE " + version),
		"FILA.SCRIPT LIST":     one("FILA.SCRIPT LIST"), "FILA.SCRIPT LOAD": one("FILA.SCRIPT LOAD small ON_FAILURE", source),
		"FILA.SCRIPT STATS": one("FILA.SCRIPT STATS queue-1-" + strings.Repeat("q", 200)), "FILA.SCRIPT TEST": one("FILA.SCRIPT TEST small ON_FAILURE SOURCE", source),
		"FILA.STATS": one("FILA.STATS small"), "FILA.THROTTLE DEL": one("FILA.THROTTLE DEL nothing"), "FILA.THROTTLE GET": one("FILA.THROTTLE GET " + longName("throttle", 1)),
		"FILA.THROTTLE LIST": one("FILA.THROTTLE LIST COUNT 10000"), "FILA.THROTTLE SET": one("FILA.THROTTLE SET another RATE 5"),
		"HELLO": one("HELLO 3"), "INFO": one("INFO everything"), "KEYS": one("KEYS *"), "LASTSAVE": one("LASTSAVE"), "LATENCY DOCTOR": one("LATENCY DOCTOR"),
		"LATENCY GRAPH": one("LATENCY GRAPH turn"), "LATENCY HISTOGRAM": one("LATENCY HISTOGRAM", many(50, "fila.enqueue", "client")...), "LATENCY HISTORY": one("LATENCY HISTORY turn"),
		"LATENCY LATEST": one("LATENCY LATEST"), "LATENCY RESET": one("LATENCY RESET"), "MEMORY DOCTOR": one("MEMORY DOCTOR"), "MEMORY MALLOC-STATS": one("MEMORY MALLOC-STATS"),
		"MEMORY PURGE": one("MEMORY PURGE " + value), "MEMORY STATS": one("MEMORY STATS"), "MEMORY USAGE": one("MEMORY USAGE small"), "MODULE LIST": one("MODULE LIST"),
		"MONITOR": one("MONITOR"), "MULTI": one("MULTI"), "OBJECT ENCODING": one("OBJECT ENCODING small"), "OBJECT FREQ": one("OBJECT FREQ small"),
		"OBJECT IDLETIME": one("OBJECT IDLETIME small"), "OBJECT REFCOUNT": one("OBJECT REFCOUNT small"), "PING": one("PING", value),
		"PSUBSCRIBE": {append([]string{"HELLO"}, "3"), append([]string{"PSUBSCRIBE"}, many(100, name)...)}, "PTTL": one("PTTL small"), "PUBLISH": one("PUBLISH channel", value),
		"PUBSUB CHANNELS": one("PUBSUB CHANNELS"), "PUBSUB NUMPAT": one("PUBSUB NUMPAT"), "PUBSUB NUMSUB": one("PUBSUB NUMSUB", many(200, "a")...),
		"PUNSUBSCRIBE": one("PUNSUBSCRIBE", many(200, "a")...), "QUIT": one("QUIT"), "READONLY": one("READONLY"), "READWRITE": one("READWRITE"), "RESET": one("RESET"),
		"ROLE": one("ROLE"), "SCAN": one("SCAN 0 COUNT 10000"), "SELECT": one("SELECT 0"), "SHUTDOWN": one("SHUTDOWN ABORT"), "SLOWLOG GET": one("SLOWLOG GET -1"),
		"SLOWLOG LEN": one("SLOWLOG LEN"), "SLOWLOG RESET": one("SLOWLOG LEN"), "SUBSCRIBE": {{"HELLO", "3"}, append([]string{"SUBSCRIBE"}, many(100, name)...)},
		"TIME": one("TIME"), "TTL": one("TTL small"), "TYPE": one("TYPE small"), "UNSUBSCRIBE": one("UNSUBSCRIBE", many(200, "a")...), "WAIT": one("WAIT 0 0"),
	}
	return forms
}

// A transaction whose replies would be too large together is refused when the command
// that is too much is queued.
func TestATransactionOfLargeRepliesIsRefused(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.do(t, "MULTI")
	n := 0
	for n < 100 && s.do(t, "FILA.KEYS", "orders", "COUNT", "10000") == "+QUEUED\r\n" {
		n++
	}
	most := s.handler.cfg.Limits.ReplyBytes
	in := input{CountMax: int64(s.handler.cfg.Limits.Count)}
	c := s.handler.table.Find([]byte("fila.keys"))
	if err := in.Scan(&c.Syntax, [][]byte{[]byte("orders"), []byte("COUNT"), []byte("10000")}); err != nil {
		t.Fatal(err)
	}
	if want := most / (c.Spec.Room(s.connect("").session, &in) + tinyRoom); n != want {
		t.Errorf("%d were queued, want %d", n, want)
	}
	if got := s.do(t, "EXEC"); !strings.HasPrefix(got, "-EXECABORT") {
		t.Errorf("EXEC: %q", got)
	}
}

// waiting returns the replies that a connection has not written: commands that were
// handled, and answered, while nothing is read.
func (c *fakeConn) handle(cmds ...[]string) (read []resp.Command, waiting []*pending) {
	read = commandsOf(cmds...)
	c.session.Handle(read)
	c.server.Do()
	for _, r := range c.window {
		if within, ok := r.(interface{ Unwrap() resp.Reply }); ok {
			r = within.Unwrap()
		}
		if p, ok := r.(*pending); ok {
			waiting = append(waiting, p)
		}
	}
	return read, waiting
}

// A reply that waits keeps of a large command what the slow log would show, and a short
// command that came with it does not keep what both came in.
func TestLargeArgumentsAreNotKeptForTheReply(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	c := s.connect("")
	payload := strings.Repeat("x", 100<<10)
	read, waiting := c.handle([]string{"FILA.ENQUEUE", "orders", payload}, []string{"FILA.STATS", "orders"})
	if len(waiting) != 2 {
		t.Fatalf("%d replies wait", len(waiting))
	}
	for i, p := range waiting {
		kept := 0
		for _, text := range p.shown {
			kept += len(text)
		}
		if p.args != nil || read[i].Args != nil || kept == 0 || kept > slowArgsMax*(slowBytesMax+perWord) {
			t.Errorf("command %d: %d arguments are kept, %d were read, %d bytes are for the slow log", i, len(p.args), len(read[i].Args), kept)
		}
	}
	c.flush()
	if _, few := c.handle([]string{"FILA.STATS", "orders"}); len(few) != 1 || few[0].args == nil {
		t.Error("a short command has lost its arguments")
	}
}

// Leases that are pipelined and not read keep of their messages what a connection may, and
// what all may; the others are read again when they are written, and none is missing.
func TestLeasedMessagesAreKeptWithinBounds(t *testing.T) {
	const messages, size = 6, 100 << 10
	for name, limits := range map[string]Limits{
		"one connection":  {Retained: 2*size + smallRoom, RetainedTotal: 1 << 30},
		"all connections": {Retained: 1 << 30, RetainedTotal: 2*size + smallRoom},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(c *Config) { c.Limits = limits })
			s.do(t, "FILA.QUEUE", "CREATE", "orders")
			payload := strings.Repeat("x", size)
			var leases [][]string
			for range messages {
				s.do(t, "FILA.ENQUEUE", "orders", payload)
				leases = append(leases, []string{"FILA.LEASE", "orders"})
			}
			c := s.connect("")
			_, waiting := c.handle(leases...)
			kept := 0
			for _, p := range waiting {
				if l, ok := p.call.(*leaseCall); ok {
					for _, d := range l.deliveries {
						kept += d.Held()
					}
				}
			}
			if most := 2*size + smallRoom; len(waiting) != messages || kept > most || kept < most/2 {
				t.Errorf("%d leases keep %d bytes, %d are allowed", len(waiting), kept, most)
			}
			if c.flush(); strings.Count(c.received(), payload) != messages {
				t.Error("messages are missing")
			}
			if n := s.handler.retained.Used() + s.handler.loads.Used() + c.session.retained.Load(); n != 0 {
				t.Errorf("%d bytes are counted that no reply holds", n)
			}
		})
	}
}

// What a lease keeps is not counted for ever when the commit after it fails, or the client
// has gone.
func TestALeaseThatIsNotWrittenKeepsNothing(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "fresh")
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.do(t, "FILA.ENQUEUE", "orders", strings.Repeat("x", 100<<10))
	c := s.connect("leaves")
	if _, waiting := c.handle([]string{"FILA.LEASE", "orders"}); len(waiting) != 1 || s.handler.retained.Used() == 0 {
		t.Fatal("the lease keeps nothing to begin with")
	}
	c.gone()
	if n := s.handler.retained.Used(); n != 0 {
		t.Errorf("%d bytes are kept for a client that has gone", n)
	}
	s.Do()
	s.store.FailCommits(errors.New("the disk is gone"))
	c = s.connect("fails")
	c.handle([]string{"FILA.ENQUEUE", "fresh", strings.Repeat("x", 100<<10)}, []string{"FILA.LEASE", "fresh"})
	c.flush()
	if n := s.handler.retained.Used(); n != 0 {
		t.Errorf("%d bytes are kept after a commit that has failed: %q", n, c.received())
	}
}

// Messages that are read to be written are counted among those of all connections: a reply
// that has some ends when there is no room for more, and one that has none waits.
func TestMessagesAreReadWithinWhatAllConnectionsMayHave(t *testing.T) {
	const size = 2 << 20
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *Config) {
			c.Limits = Limits{Message: size + smallRoom, LoadTotal: 2 * (size + smallRoom), Retained: 1, RetainedTotal: 1}
		})
		s.do(t, "FILA.QUEUE", "CREATE", "orders")
		s.handler.retained.Take(1) // so that none is kept from when it was in memory
		payload := strings.Repeat("x", size)
		for range 4 {
			s.do(t, "FILA.ENQUEUE", "orders", payload)
		}
		if got := strings.Count(s.do(t, "FILA.LEASE", "orders", "COUNT", "4"), payload); got != 2 {
			t.Errorf("a reply has %d messages, there was room for 2", got)
		}
		s.handler.loads.Take(2 * (size + smallRoom)) // by others
		c := s.connect("other")
		c.handle([]string{"FILA.LEASE", "orders", "COUNT", "4"})
		written := make(chan struct{})
		go func() {
			c.flush()
			close(written)
		}()
		synctest.Wait()
		if c.out.Len() > 0 {
			t.Error("a message was read while others had all the room")
		}
		s.handler.loads.Give(2 * (size + smallRoom))
		<-written
		if got := strings.Count(c.received(), payload); got != 2 {
			t.Errorf("a reply has %d messages, there are 2 left", got)
		}
		if n := s.handler.loads.Used(); n != 0 {
			t.Errorf("%d bytes are counted that no reply holds", n)
		}
	})
}

// Commands that wait for EXEC are bounded, those of all clients together; short
// transactions always pass, and what one has held others have when it is over.
func TestLongTransactionsOfAllClientsAreBounded(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Limits.QueuedTotal = 1 << 20 })
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	long, short := strings.Repeat("x", 600<<10), strings.Repeat("x", 100<<10)
	queue := func(conn, payload string) string {
		c := s.connect(conn)
		if c.session.multi == nil {
			c.do("MULTI")
		}
		return c.do("FILA.ENQUEUE", "orders", payload)
	}
	for _, step := range []struct {
		conn, payload, want string
		before              func()
	}{
		{"a", long, "+QUEUED", nil},
		{"b", long, "-OOM", nil},
		{"c", short, "+QUEUED", nil},
		{"c", short, "+QUEUED", nil},
		{"d", long, "+QUEUED", func() { s.connect("a").do("EXEC") }},
		{"e", long, "-OOM", nil},
		{"f", long, "+QUEUED", func() { s.connect("d").gone() }},
		{"g", long, "+QUEUED", func() { s.connect("f").do("DISCARD") }},
		{"h", long, "+QUEUED", func() { s.connect("g").do("RESET") }},
	} {
		if step.before != nil {
			step.before()
		}
		if got := queue(step.conn, step.payload); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %.80q, want %s", step.conn, got, step.want)
		}
	}
	s.connect("h").do("DISCARD")
	if n := s.handler.queued.Used(); n != 0 {
		t.Errorf("%d bytes are counted that no reply holds", n)
	}
}
