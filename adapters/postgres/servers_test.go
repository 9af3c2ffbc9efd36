package outbox

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// TestMain starts the broker and the database that most tests share, or is a relay in a process of its own.
func TestMain(m *testing.M) {
	logging.Disable() // brokers are killed here
	if os.Getenv("RELAY_BROKER") != "" {
		os.Exit(program())
	}
	os.Exit(withServers(m))
}

var sharedBroker *brokerProcess //nolint:gochecknoglobals // set before the tests run

var sharedDB *database //nolint:gochecknoglobals // set before the tests run

var databases atomic.Int64 //nolint:gochecknoglobals // numbers their names

func withServers(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fila-outbox-")
	if err == nil {
		defer os.RemoveAll(dir)
		sharedBroker = &brokerProcess{dir: dir, storage: "memory"} // it is not restarted
		if err = sharedBroker.start(); err == nil {
			defer sharedBroker.kill()
			sharedDB = &database{}
			if err = sharedDB.start(); err == nil {
				defer sharedDB.remove()
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// program is a relay until SIGTERM. It kills itself when it comes to the step RELAY_DIES_AT.
func program() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r, err := New(Config{Broker: os.Getenv("RELAY_BROKER"), Database: os.Getenv("RELAY_DATABASE"), Batch: 20, Poll: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer r.Close()
	r.at = func(step string) {
		if step == os.Getenv("RELAY_DIES_AT") {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	fmt.Println("started")
	r.Run(ctx)
	return 0
}

// relayProcess starts a relay in a process of its own, and waits until it ends in order at SIGTERM.
func relayProcess(t *testing.T, broker, db, diesAt string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), "RELAY_BROKER="+broker, "RELAY_DATABASE="+db, "RELAY_DIES_AT="+diesAt)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("a relay that starts: %q, %v", line, err)
	}
	return cmd
}

// patience is how long a test waits for something: two minutes, times TEST_PATIENCE.
func patience() time.Duration {
	factor, err := strconv.ParseFloat(cmp.Or(os.Getenv("TEST_PATIENCE"), "1"), 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(factor * float64(2*time.Minute))
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience()); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience(), what)
		}
	}
}

// atLength skips a test in a short run.
func atLength(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("at length")
	}
}

// brokerProcess is a process of the broker that TEST_BROKER names.
type brokerProcess struct {
	addr, dir string
	storage   string // rocksdb, unless it is set
	args      []string
	cmd       *exec.Cmd
}

// start starts the broker, again at the same address.
func (b *brokerProcess) start() (err error) {
	bin := cmp.Or(os.Getenv("TEST_BROKER"), "../../bin/fila")
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if _, err := os.Stat(bin); err != nil {
		return fmt.Errorf("%w: build the broker with `make build`, or name one in TEST_BROKER", err)
	}
	if b.addr == "" {
		port, err := reserve()
		if err != nil {
			return err
		}
		b.addr = fmt.Sprint("127.0.0.1:", port)
	}
	args := append([]string{"--server.listen_addr", b.addr, "--storage.path", b.dir, "--storage.engine", cmp.Or(b.storage, "rocksdb"), "--admin.listen_addr", "", "--log.level", "error"}, b.args...)
	b.cmd = exec.CommandContext(context.Background(), bin, args...)
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: b.addr, MaxRetries: -1})
	defer client.Close()
	for end := time.Now().Add(patience()); client.Ping(context.Background()).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.kill()
			return fmt.Errorf("the broker does not answer at %s", b.addr)
		}
	}
	return nil
}

func (b *brokerProcess) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// client returns a client of the broker.
func (b *brokerProcess) client(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: b.addr, MaxRetries: -1, ReadTimeout: patience()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// database is a PostgreSQL of the newest version that is installed, in a directory of its own, as a user that is not
// root.
type database struct {
	dir  string
	bin  string
	port int
	as   *syscall.SysProcAttr
	cmd  *exec.Cmd

	ended <-chan error
}

// start starts the database, again at the same address.
func (d *database) start() (err error) {
	if d.dir == "" {
		if err := d.init(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(patience()); ; {
		// It must survive kills of its processes, not of the machine.
		d.cmd = d.command("postgres", "-D", d.dir+"/data", "-p", strconv.Itoa(d.port), "-k", d.dir, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "log_min_messages=panic")
		if err := d.cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- d.cmd.Wait() }()
		for running := true; running; {
			select {
			case err = <-ended: // processes of its predecessor may still end
				running = false
			case <-time.After(20 * time.Millisecond):
				var conn *pgx.Conn
				if conn, err = pgx.Connect(context.Background(), d.url("postgres")); err == nil {
					d.ended = ended
					return conn.Close(context.Background())
				}
			}
			if time.Now().After(end) {
				return fmt.Errorf("PostgreSQL does not answer: %w", err)
			}
		}
	}
}

// init makes the data directory.
func (d *database) init() error {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // of Debian; there may be several
	slices.SortFunc(bins, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	if len(bins) > 0 {
		d.bin = bins[len(bins)-1]
	} else if at, err := exec.LookPath("postgres"); err == nil {
		d.bin = filepath.Dir(at)
	} else {
		return errors.New("PostgreSQL is missing: make setup-tests installs it")
	}
	var err error
	if d.dir, err = os.MkdirTemp("", "fila-postgres-"); err != nil {
		return err
	}
	d.as = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		d.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(d.dir, uid, gid); err != nil {
			return err
		}
	}
	if d.port, err = reserve(); err != nil {
		return err
	}
	cmd := d.command("initdb", "-D", d.dir+"/data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C", "--no-sync")
	cmd.Stdout = nil
	return cmd.Run()
}

func (d *database) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(d.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Stderr = d.dir, d.as, os.Stderr
	return cmd
}

// kill kills all processes of the database. Those of connections lead sessions of their own.
func (d *database) kill() {
	pid := d.cmd.Process.Pid
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	_ = d.cmd.Process.Kill()
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	<-d.ended
}

func (d *database) remove() {
	d.kill()
	_ = os.RemoveAll(d.dir)
}

func (d *database) url(name string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?connect_timeout=%d", d.port, name, int(patience().Seconds()))
}

// fresh returns the URL of a new database with the tables of the outbox.
func (d *database) fresh(t *testing.T) string {
	t.Helper()
	name := fmt.Sprint("test", databases.Add(1))
	exec1(t, d.url("postgres"), "CREATE DATABASE "+name)
	db := connect(t, d.url(name))
	if err := Setup(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return d.url(name)
}

// connect returns a connection until the test ends.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// exec1 executes a statement on a connection of its own.
func exec1(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// reserve returns a port for a server. The system gives it to no other process until this one ends: a socket that never
// listens is bound to it, and servers may bind it beside that, as they set SO_REUSEADDR.
func reserve() (port int, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return at.(*syscall.SockaddrInet4).Port, nil
}
