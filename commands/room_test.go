//go:build !race

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
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
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
			if testing.Short() && c.Spec.Room == nil {
				delete(forms, c.Display)
				continue // at length, also those whose replies are always small
			}
			f.mode = modeOf(c)
			form, there := forms[c.Display]
			if delete(forms, c.Display); !there {
				form = f.fromExamples(c)
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
	engine  *loop.Engine
	handler *Handler
	server  *resp.Server
	stopped chan error

	big   []string // ids of large messages
	small []string // of small ones
	conns []net.Conn
	mode  resp.Mode // of the ports to which connections are opened
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
	if f.engine, err = loop.New(cfg, storage.NewMemory()); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for i := range 100 {
		settings[fmt.Sprintf("setting.%d", i)] = strings.Repeat("v", 100)
	}
	f.handler, err = New(Config{
		Now: time.Now, SlowAfter: 0, SlowMax: 200, Settings: settings, Shutdown: func() {}, Replication: &crowd{},
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
	go f.server.ServeConn(theirs, f.mode)
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
	ticks := []string{"KEY", longName("key", 0)}
	for i := range engine.BudgetsMax {
		add("FILA.BUDGET", "SET", longName("budget", i))
		ticks = append(ticks, "BUDGET", longName("budget", i))
	}
	for i := range 50 {
		name := fmt.Sprintf("queue-%d-%s", i, strings.Repeat("q", 200))
		add("FILA.QUEUE", "CREATE", name, "NODLQ")
		add("FILA.SCRIPT", "LOAD", name, "ON_FAILURE", scriptOfQueues())
		add(append([]string{"FILA.CRON", "SET", longName("cron", i), "small", "@yearly", "payload"}, ticks...)...)
		add("ACL", "SETUSER", fmt.Sprintf("user-%d", i), "on", ">secret", "~"+longName("pattern", i), "+@all")
	}
	add("FILA.CRON", "SET", "brief", "small", "@yearly", "x") // what its messages take is not the replies'
	for i := range 300 {
		add("FILA.THROTTLE", "SET", longName("throttle", i), "RATE", "1000", "CONCURRENCY", "1000000000", "ADAPTIVE", "MIN", "1000000000")
		add("FILA.BUDGET", "SET", longName("budget", i), "REFILL", "1000", "EVERY", "@yearly")
		add("FILA.CONFIG", "SET", longName("config", i), strings.Repeat("v", 8<<10))
		add("FILA.SIGNAL", "ADD", longName("signal", i), strings.Repeat("n", 64))
		add("FILA.SIGNAL", "ADD", "one", fmt.Sprint("name-", i))
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
	for range 2 + 50*4 + 900 + 24 + 3000 {
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

// fromExamples returns the form of a command that is not in worstForms: its examples, with ids and
// receipts of the flooded broker. Those of a command that only reads are about a queue with many
// messages, and ask for as much as the syntax allows. Of a command with Room only its own lines are
// the form: the others are sent once, before.
func (f *flooded) fromExamples(c *entry) [][]string {
	f.t.Helper()
	if c.Spec.Name == "HELP" {
		return [][]string{strings.Fields(c.Display)}
	}
	var form [][]string
	known := strings.NewReplacer("<id>", f.small[0], "<receipt>", f.small[0]+":1")
	for _, e := range c.Spec.Examples {
		args, err := splitLine(known.Replace(e.Command()))
		if err != nil {
			f.t.Fatal(err)
		}
		if c.ReadOnly && calledBy(c, args) {
			args = enlarged(c, args)
		}
		form = append(form, args)
	}
	if c.Spec.Room == nil {
		return form
	}
	if !f.answered(c, form) {
		f.t.Errorf("%s: its examples are refused by the flooded broker; add the form that takes most memory to worstForms", c.Display)
	}
	return slices.DeleteFunc(form, func(args []string) bool { return !calledBy(c, args) })
}

// calledBy reports whether a command line is of the command.
func calledBy(c *entry, args []string) bool {
	return strings.EqualFold(strings.Join(args[:min(c.Words, len(args))], " "), c.Display)
}

// enlarged returns a command line about the queue small, with the largest COUNT and with many of
// the last argument, where the syntax has these.
func enlarged(c *entry, args []string) []string {
	in, words := input{CountMax: math.MaxInt64}, make([][]byte, len(args))
	for i, a := range args {
		words[i] = []byte(a)
	}
	if in.Scan(&c.Syntax, words[c.Words:]) != nil {
		return args
	}
	for _, k := range in.Keys() {
		args[slices.Index(args, string(k))] = "small"
	}
	for i := range c.Spec.Args {
		switch a := &c.Spec.Args[i]; {
		case a.Token == "COUNT" && !slices.Contains(args, "COUNT"):
			args = append(args, "COUNT", "10000")
		case a.Token == "COUNT":
			args[slices.Index(args, "COUNT")+1] = "10000"
		case a.Multiple && a.Token == "" && a.CountedBy == "" && i == len(c.Spec.Args)-1 && len(args) > c.Words:
			args = append(args, slices.Repeat(args[len(args)-1:], 100)...)
		}
	}
	return args
}

// answered sends a form once, and reports whether the command itself has a reply that is no error.
func (f *flooded) answered(c *entry, form [][]string) bool {
	client := &liveClient{conn: f.connect()}
	client.in = bufio.NewReader(client.conn)
	defer client.conn.Close() //nolint:errcheck // nothing is sent any more
	found := false
	for _, args := range form {
		go client.send(args...)
		r, err := client.read()
		if err != nil {
			f.t.Errorf("%s: %v", c.Display, err)
			return false
		}
		found = found || calledBy(c, args) && r.kind != '-'
	}
	return found
}

// heap is what is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools keep
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// worstForms are the forms of commands that take most memory on the flooded broker, where that is
// more than their examples do.
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
	return map[string][][]string{
		"ACL CAT":              one("ACL CAT fila"),
		"ACL DELUSER":          one("ACL DELUSER", many(100, "nobody")...),
		"ACL DRYRUN":           one("ACL DRYRUN default FILA.ACK", many(50, name)...),
		"ACL GENPASS":          one("ACL GENPASS 4096"),
		"ACL GETUSER":          one("ACL GETUSER user-1"),
		"ACL LOG":              one("ACL LOG 1000"),
		"ACL SETUSER":          one("ACL SETUSER user-1 ~" + name),
		"AUTH":                 one("AUTH nobody secret"),
		"CLIENT CAPA":          one("CLIENT CAPA", many(100, "redirect")...),
		"CLIENT KILL":          one("CLIENT KILL ID 999999"),
		"CLIENT REPLY":         one("CLIENT REPLY ON"),
		"CLIENT SETINFO":       one("CLIENT SETINFO LIB-NAME " + name),
		"CLIENT SETNAME":       one("CLIENT SETNAME " + name),
		"CLIENT TRACKING":      one("CLIENT TRACKING ON BCAST PREFIX " + name),
		"COMMAND DOCS":         one("COMMAND DOCS", many(100, "fila.enqueue", "client")...),
		"COMMAND GETKEYS":      one("COMMAND GETKEYS FILA.MLEASE 100", many(100, "q")...),
		"COMMAND INFO":         one("COMMAND INFO", many(100, "fila.queue")...),
		"CONFIG GET":           one("CONFIG GET * *"),
		"CONFIG SET":           one("CONFIG SET slowlog-max-len 200"),
		"ECHO":                 one("ECHO", value),
		"EXEC":                 append(transaction, []string{"EXEC"}),
		"EXISTS":               one("EXISTS", many(500, name)...),
		"FILA.ACK":             one("FILA.ACK small", receipts...),
		"FILA.BACKUP":          one("FILA.BACKUP backup"),
		"FILA.BROWSE":          append(one("FILA.BROWSE big COUNT 10000 PAYLOAD x"), strings.Fields("FILA.BROWSE big COUNT 10000 GROUP ERROR")),
		"FILA.CANCEL":          one("FILA.CANCEL small", f.small[1000:1500]...),
		"FILA.CONFIG DEL":      one("FILA.CONFIG DEL", many(100, "nothing")...),
		"FILA.CONFIG GET":      one("FILA.CONFIG GET " + longName("config", 1)),
		"FILA.CONFIG SET":      one("FILA.CONFIG SET another", value),
		"FILA.CRON GET":        one("FILA.CRON GET " + longName("cron", 1)),
		"FILA.CRON RUN":        one("FILA.CRON RUN brief"),
		"FILA.CRON SET":        one("FILA.CRON SET another small @yearly", value),
		"FILA.ENQUEUE":         one("FILA.ENQUEUE small", value),
		"FILA.EXPLAIN":         one("FILA.EXPLAIN small " + f.small[2000]),
		"FILA.EXTEND":          one("FILA.EXTEND small " + receipts[0] + " 1000"),
		"FILA.GET":             one("FILA.GET big " + id),
		"FILA.KEY DEL":         one("FILA.KEY DEL small " + name),
		"FILA.KEY GET":         one("FILA.KEY GET small " + name),
		"FILA.KEY PAUSE":       one("FILA.KEY PAUSE small " + name),
		"FILA.KEY RESUME":      one("FILA.KEY RESUME small " + name),
		"FILA.KEY SET":         one("FILA.KEY SET small " + name + " WEIGHT 2"),
		"FILA.KEYS":            append(one("FILA.KEYS small COUNT 10000"), strings.Fields("FILA.KEYS small COUNT 10000 BY DEPTH")),
		"FILA.LEASE":           one("FILA.LEASE big COUNT 10000"),
		"FILA.MLEASE":          one("FILA.MLEASE 2 big big.dlq COUNT 10000"),
		"FILA.NACK":            one("FILA.NACK small "+receipts[0]+" ERROR", value),
		"FILA.PURGE":           one("FILA.PURGE small KEY nothing"),
		"FILA.QUEUE APPLY":     one("FILA.QUEUE APPLY", `{"queues":[`+strings.Repeat(`{"name":"small"},`, 200)+`{"name":"big"}]}`, "DRYRUN"),
		"FILA.REDRIVE":         one("FILA.REDRIVE big.dlq ERROR", value),
		"FILA.RELEASE":         one("FILA.RELEASE small", receipts...),
		"FILA.RESCHEDULE":      one("FILA.RESCHEDULE big " + f.big[1] + " 1"),
		"FILA.SCRIPT GET":      one("FILA.SCRIPT GET queue-1-" + strings.Repeat("q", 200) + " ON_FAILURE"),
		"FILA.SCRIPT HISTORY":  one("FILA.SCRIPT HISTORY queue-1-" + strings.Repeat("q", 200) + " ON_FAILURE"),
		"FILA.SCRIPT LOAD":     one("FILA.SCRIPT LOAD small ON_FAILURE", source),
		"FILA.SCRIPT ROLLBACK": one("FILA.SCRIPT ROLLBACK queue-1-" + strings.Repeat("q", 200) + " ON_FAILURE " + version),
		"FILA.SCRIPT STATS":    one("FILA.SCRIPT STATS queue-1-" + strings.Repeat("q", 200)),
		"FILA.SCRIPT TEST":     one("FILA.SCRIPT TEST small ON_FAILURE SOURCE", source),
		"FILA.SIGNAL GET":      one("FILA.SIGNAL GET one"),
		"FILA.BUDGET CHARGE":   one("FILA.BUDGET CHARGE "+longName("budget", 1)+" 1 FORCE NOTE", value[:500]),
		"FILA.BUDGET GET":      one("FILA.BUDGET GET " + longName("budget", 1)),
		"FILA.AUDIT":           one("FILA.AUDIT COUNT 10000"),
		"FILA.BUDGET HISTORY":  one("FILA.BUDGET HISTORY " + longName("budget", 1) + " COUNT 10000"),
		"FILA.THROTTLE GET":    one("FILA.THROTTLE GET " + longName("throttle", 1)),
		"FILA.CLUSTER STATUS":  one("FILA.CLUSTER STATUS"),
		"FILA.CLUSTER VERIFY":  one("FILA.CLUSTER VERIFY"),
		"INFO":                 one("INFO everything"),
		"LATENCY HISTOGRAM":    one("LATENCY HISTOGRAM", many(50, "fila.enqueue", "client")...),
		"LATENCY HISTORY":      one("LATENCY HISTORY turn"),
		"PING":                 one("PING", value),
		"PSUBSCRIBE":           {append([]string{"HELLO"}, "3"), append([]string{"PSUBSCRIBE"}, many(100, name)...)},
		"PUBLISH":              one("PUBLISH channel", value),
		"PUBSUB CHANNELS":      one("PUBSUB CHANNELS"),
		"PUBSUB NUMSUB":        one("PUBSUB NUMSUB", many(200, "a")...),
		"PUNSUBSCRIBE":         one("PUNSUBSCRIBE", many(200, "a")...),
		"SHUTDOWN":             one("SHUTDOWN ABORT"),
		"SLOWLOG GET":          one("SLOWLOG GET -1"),
		"SUBSCRIBE":            {{"HELLO", "3"}, append([]string{"SUBSCRIBE"}, many(100, name)...)},
		"UNSUBSCRIBE":          one("UNSUBSCRIBE", many(200, "a")...),
	}
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
						kept += d.RecordBytes()
					}
				}
			}
			if most := 2*size + smallRoom; len(waiting) != messages || kept > most || kept < most/2 {
				t.Errorf("%d leases keep %d bytes, %d are allowed", len(waiting), kept, most)
			}
			if c.flush(); strings.Count(c.received(), payload) != messages {
				t.Error("messages are missing")
			}
			if n := s.handler.retained.Used() + s.handler.loads.Used() + c.session.memory.retained.Load(); n != 0 {
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

// Commands that wait for EXEC are bounded, those of all clients together; short
// transactions always pass, and what one has held others have when it is over.
func TestLongTransactionsOfAllClientsAreBounded(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Limits.QueuedTotal = 1 << 20 })
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	long, short := strings.Repeat("x", 600<<10), strings.Repeat("x", 100<<10)
	queue := func(conn, payload string) string {
		c := s.connect(conn)
		if c.session.tx.open == nil {
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
