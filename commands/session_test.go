//go:build !race

package commands

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

func TestPipelineGoesToTheEngineInOneSubmit(t *testing.T) {
	s := newServer(t, nil)
	c := s.connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	s.submits = 0
	c.send(
		[]string{"FILA.ENQUEUE", "orders", "a"}, []string{"PING"}, []string{"NOSUCH"}, []string{"FILA.ENQUEUE", "orders", "b"},
		[]string{"FILA.LEASE", "orders", "COUNT", "0"}, []string{"FILA.ENQUEUE", "orders"}, []string{"FILA.LEASE", "orders", "COUNT", "5"},
	)
	if s.submits != 1 {
		t.Errorf("%d submits, want 1", s.submits)
	}
	got := printed(t, c.received())
	for _, want := range []string{"PONG", "unknown command 'NOSUCH'", "COUNT must be", "wrong number", `2) "a"`, `2) "b"`} {
		at := strings.Index(got, want)
		if at < 0 {
			t.Fatalf("%q is missing, or out of order, in\n%s", want, got)
		}
		got = got[at:]
	}
}

func TestReplySpeaksTheProtocolOfItsCommand(t *testing.T) {
	s := newServer(t, nil)
	c := s.connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	c.send([]string{"FILA.STATS", "orders"}, []string{"HELLO", "3"}, []string{"FILA.STATS", "orders"}, []string{"HELLO", "2"})
	first, rest, err := decode(c.received())
	if err != nil || first.kind != '*' {
		t.Fatalf("before HELLO 3: %c, %v", first.kind, err)
	}
	hello, rest, err := decode(rest)
	if err != nil || hello.kind != '%' {
		t.Fatalf("HELLO 3 itself: %c, %v", hello.kind, err)
	}
	second, rest, err := decode(rest)
	if err != nil || second.kind != '%' {
		t.Fatalf("after HELLO 3: %c, %v", second.kind, err)
	}
	if back, _, err := decode(rest); err != nil || back.kind != '*' {
		t.Fatalf("HELLO 2: %c, %v", back.kind, err)
	}
}

func TestNothingIsHandledBehindQuit(t *testing.T) {
	s := newServer(t, nil)
	c := s.connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	c.send([]string{"FILA.ENQUEUE", "orders", "a"}, []string{"QUIT"}, []string{"FILA.ENQUEUE", "orders", "b"})
	if got := printed(t, c.received()); !strings.HasSuffix(got, "\nOK") || !c.closed {
		t.Errorf("closed: %v, got %s", c.closed, got)
	}
	if got := s.connect("b").do("FILA.LEASE", "orders", "COUNT", "5"); !strings.HasPrefix(got, "*1\r\n") {
		t.Errorf("one message was enqueued before QUIT: %q", got)
	}
}

// A reply that is dropped was not read by anyone: its messages are there for the
// next one at once, and the attempt does not count.
func TestDroppedLeaseGoesBack(t *testing.T) {
	for _, rendered := range []bool{false, true} {
		s := newServer(t, nil)
		s.do(t, "FILA.QUEUE", "CREATE", "orders")
		s.do(t, "FILA.ENQUEUE", "orders", "hello")
		c := s.connect("a")
		c.session.Handle(commandsOf([]string{"FILA.LEASE", "orders"}))
		r := c.window[0]
		if !r.Ready() {
			t.Fatal("there is a message to lease")
		}
		if rendered { // the write failed behind Append
			r.Append(&c.session.out.writer)
		}
		r.Drop()
		s.settle()
		got := printed(t, s.do(t, "FILA.LEASE", "orders"))
		if !strings.Contains(got, `5) (integer) 1`) || !strings.Contains(got, `:2"`) {
			t.Errorf("rendered: %v: want the first attempt with a second receipt, got\n%s", rendered, got)
		}
		c.window = nil
	}
}

func TestLeaseOfClientThatLeavesWhileItWaitsIsNeverServed(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	c := s.connect("a")
	c.send([]string{"FILA.LEASE", "orders", "BLOCK", "0"}, []string{"FILA.ENQUEUE", "orders", "ghost"})
	c.gone()
	s.settle()
	if len(c.window) != 0 {
		t.Errorf("%d replies never become ready", len(c.window))
	}
	s.do(t, "FILA.ENQUEUE", "orders", "hello")
	if got := s.do(t, "FILA.LEASE", "orders", "COUNT", "5"); !strings.HasPrefix(got, "*1\r\n") || !strings.Contains(got, "hello") {
		t.Errorf("got %q", got)
	}
}

// The bound on one reply: what does not fit goes back uncounted, but a message
// too large for it alone is still delivered.
func TestLeaseReplyIsBounded(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Limits.ReplyBytes = 10 })
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	for range 4 {
		s.do(t, "FILA.ENQUEUE", "orders", "123456")
	}
	if got := s.do(t, "FILA.LEASE", "orders", "COUNT", "4"); !strings.HasPrefix(got, "*2\r\n") {
		t.Errorf("two messages pass the bound of 10 bytes, got %q", got)
	}
	got := printed(t, s.do(t, "FILA.LEASE", "orders", "COUNT", "4"))
	if strings.Count(got, `6) (integer) 1`) != 2 {
		t.Errorf("the other two were never delivered, got\n%s", got)
	}
	s.do(t, "FILA.ENQUEUE", "orders", strings.Repeat("x", 100))
	if got := s.do(t, "FILA.LEASE", "orders"); !strings.HasPrefix(got, "*1\r\n") {
		t.Errorf("one message always fits, got %q", got)
	}
}

// Between the lease and the rendering an operator may remove the message.
func TestMessageRemovedMeanwhileIsLeftOut(t *testing.T) {
	cfg := engine.DefaultConfig()
	cfg.BodyBytes = 0 // bodies are read from the store
	s := newServerOf(t, cfg, nil)
	close(s.ready)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.do(t, "FILA.ENQUEUE", "orders", "kept")
	removed := strings.Trim(printed(t, s.do(t, "FILA.ENQUEUE", "orders", "removed")), `"`)
	c := s.connect("a")
	c.session.Handle(commandsOf([]string{"FILA.LEASE", "orders", "COUNT", "5"}))
	s.Submit([]*engine.Task{{Call: ackOf(t, removed)}})
	s.settle()
	if got := c.received(); !strings.HasPrefix(got, "*1\r\n") || !strings.Contains(got, "kept") {
		t.Errorf("got %q", got)
	}
}

func ackOf(t *testing.T, id string) engine.Call {
	t.Helper()
	r, err := engine.ParseReceipt([]byte(id))
	if err != nil {
		t.Fatal(err)
	}
	c := &ackCall{}
	c.queue, c.list = "orders", []engine.Receipt{r}
	return c
}

func TestWhileTheEngineRecoversOnlyLookingIsAllowed(t *testing.T) {
	s := newServerOf(t, engine.DefaultConfig(), nil)
	for _, command := range []string{"PING", "FILA.QUEUE LIST", "FILA.ENQUEUE orders hello", "DBSIZE"} {
		if got := s.do(t, strings.Fields(command)...); !strings.HasPrefix(got, "-LOADING ") {
			t.Errorf("%s: got %q", command, got)
		}
	}
	if got := s.do(t, "INFO", "persistence"); !strings.Contains(got, "loading:1\r\n") || !strings.Contains(got, "aof_last_write_status:ok") {
		t.Errorf("got %q", got)
	}
	for _, command := range []string{"HELLO", "CLIENT ID", "COMMAND COUNT", "CONFIG GET save", "SELECT 0", "TIME", "CLIENT UNBLOCK 1"} {
		if got := s.do(t, strings.Fields(command)...); strings.HasPrefix(got, "-") {
			t.Errorf("%s: got %q", command, got)
		}
	}
	close(s.ready)
	if got := s.do(t, "PING"); got != "+PONG\r\n" {
		t.Errorf("got %q", got)
	}
	if got := s.do(t, "INFO"); !strings.Contains(got, "loading:0\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestInfoHasWhatClientsReadOfIt(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.Advance(90 * time.Second)
	got := s.do(t, "INFO")
	for _, want := range []string{
		"# Server\r\nredis_version:7.0.15\r\n", "redis_mode:standalone", "loading:0", "role:master", "connected_slaves:0", "cluster_enabled:0",
		"tcp_port:5555", "connected_clients:1", "used_memory:", "uptime_in_seconds:90", "db0:keys=2,", "# CPU\r\n", "\r\n\r\n# Fila\r\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for _, sections := range [][]string{{"all"}, {"default"}, {"EVERYTHING"}} {
		if other := s.do(t, append([]string{"INFO"}, sections...)...); len(other) < len(got)/2 {
			t.Errorf("%v: only %q", sections, other)
		}
	}
	if one := s.do(t, "INFO", "replication", "clients"); strings.Count(one, "# ") != 2 {
		t.Errorf("two sections, got %q", one)
	}
	s.store.FailCommits(errors.New("no space left on device"))
	s.do(t, "FILA.ENQUEUE", "orders", "hello")
	if got := s.do(t, "INFO", "persistence"); !strings.Contains(got, "aof_last_write_status:err") {
		t.Errorf("got %q", got)
	}
	s.store.FailCommits(nil)
	if err := s.Repair(); err != nil {
		t.Fatal(err)
	}
}

func TestShutdownIsRefusedWhereThereIsNobodyToDoIt(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Shutdown = nil })
	if got := s.do(t, "SHUTDOWN"); got != "-ERR Errors trying to SHUTDOWN. Check logs.\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{{}, {Now: time.Now, Limits: Limits{Count: -1}}, {Now: time.Now, Limits: Limits{ReplyBytes: -1}}} {
		if _, err := New(cfg, nil); err == nil {
			t.Errorf("%+v was accepted", cfg.Limits)
		}
	}
}

// fakeBackups fails, or waits, as it is told.
type fakeBackups struct {
	taken []string
	err   error
}

func (b *fakeBackups) Check(name string) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("%q leads elsewhere", name)
	}
	return nil
}

func (b *fakeBackups) Take(name string) (string, error) {
	b.taken = append(b.taken, name)
	return "/backups/" + name, b.err
}

func serverWithBackups(t *testing.T, b engine.Backups, last time.Time) *server {
	t.Helper()
	cfg := engine.DefaultConfig()
	cfg.Backups, cfg.LastBackup = b, last
	s := newServerOf(t, cfg, nil)
	close(s.ready)
	return s
}

func wantReply(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func wantInfo(t *testing.T, s *server, lines ...string) {
	t.Helper()
	info := s.do(t, "INFO", "persistence")
	for _, line := range lines {
		if !strings.Contains(info, "\r\n"+line+"\r\n") {
			t.Errorf("INFO has no %q:\n%s", line, info)
		}
	}
}

func TestABackupIsToldOf(t *testing.T) {
	b := &fakeBackups{}
	s := serverWithBackups(t, b, time.Time{})
	wantReply(t, s.do(t, "LASTSAVE"), ":0\r\n")
	wantInfo(t, s, "rdb_bgsave_in_progress:0", "rdb_last_save_time:0", "rdb_last_bgsave_status:ok", "rdb_last_bgsave_time_sec:-1", "rdb_current_bgsave_time_sec:-1")
	wantReply(t, s.do(t, "FILA.BACKUP", "monday"), "*6\r\n$4\r\nname\r\n$6\r\nmonday\r\n$4\r\npath\r\n$15\r\n/backups/monday\r\n$7\r\ntook_ms\r\n:0\r\n")
	at := fmt.Sprint(startTime().Unix())
	wantReply(t, s.do(t, "LASTSAVE"), ":"+at+"\r\n")
	wantInfo(t, s, "rdb_last_save_time:"+at, "rdb_last_bgsave_status:ok")

	b.err = errors.New("the disk is full")
	s.Advance(time.Hour)
	if got := s.do(t, "FILA.BACKUP", "tuesday"); !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, "the disk is full") {
		t.Errorf("a backup that failed: %q", got)
	}
	wantReply(t, s.do(t, "LASTSAVE"), ":"+at+"\r\n")
	wantInfo(t, s, "rdb_last_save_time:"+at, "rdb_last_bgsave_status:err")
	if got := s.do(t, "FILA.BACKUP", "../etc"); !strings.HasPrefix(got, "-INVALID ") {
		t.Errorf("a name that leads elsewhere: %q", got)
	}
	wantReply(t, s.do(t, "BGSAVE"), "+Background saving started\r\n")
	wantReply(t, s.do(t, "BGSAVE", "SCHEDULE"), "+Background saving started\r\n")
	if got := fmt.Sprint(b.taken); got != "[monday tuesday 20260101-010000.000 20260101-010000.000]" {
		t.Errorf("taken: %s", got)
	}
}

func TestOneBackupAtATime(t *testing.T) {
	b := &fakeBackups{}
	s := serverWithBackups(t, b, startTime().Add(-time.Minute))
	wantReply(t, s.do(t, "LASTSAVE"), fmt.Sprintf(":%d\r\n", startTime().Unix()-60))
	s.Lazy = func() bool { return true } // the disk is slow
	wantReply(t, s.connect("a").do("FILA.BACKUP", "slow"), "")
	wantReply(t, s.do(t, "BGSAVE"), "")
	s.Lazy = nil
	s.settle()
	if out := s.connect("a").received(); !strings.Contains(out, "/backups/slow") {
		t.Errorf("the first: %q", out)
	}
	wantReply(t, s.connect("").received(), "-ERR Background save already in progress\r\n")
}

// A backup must not be waited for that was asked for in a batch that is lost.
func TestABackupBehindALostBatchFails(t *testing.T) {
	b := &fakeBackups{}
	s := serverWithBackups(t, b, time.Time{})
	wantReply(t, s.do(t, "FILA.QUEUE", "CREATE", "q"), "+OK\r\n")
	s.store.FailCommits(errors.New("the disk is broken"))
	c := s.connect("a")
	c.send([]string{"FILA.ENQUEUE", "q", "x"}, []string{"FILA.BACKUP", "lost"})
	if out := c.received(); !strings.HasPrefix(out, "-MISCONF ") || !strings.Contains(out, "\r\n-MISCONF ") {
		t.Errorf("got %q", out)
	}
	if len(b.taken) != 0 {
		t.Errorf("taken: %v", b.taken)
	}
	s.store.FailCommits(nil)
	if err := s.Repair(); err != nil {
		t.Fatal(err)
	}
	if out := s.connect("b").do("FILA.BACKUP", "next"); !strings.Contains(out, "/backups/next") {
		t.Errorf("the next: %q", out)
	}
}

func TestTheMemoryStoreHasNoBackups(t *testing.T) {
	s := newServer(t, nil)
	for _, args := range [][]string{{"BGSAVE"}, {"FILA.BACKUP", "x"}} {
		if got := s.do(t, args...); !strings.HasPrefix(got, "-INVALID ") || !strings.Contains(got, "memory") {
			t.Errorf("%v: %q", args, got)
		}
	}
}
