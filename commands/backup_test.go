package commands

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

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
	if out := c.received(); !strings.HasPrefix(out, "-MISCONF ") || !strings.Contains(out, "\r\n-ERR the store could not write") {
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
