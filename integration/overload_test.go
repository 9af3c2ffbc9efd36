package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/proc"
	"github.com/faisca/fila/internal/testkit"
)

// TestOverloadIsBounded combines all kinds of overload: ten thousand idle connections, clients that
// send commands of 32 MiB except for the last byte, clients that read no replies, a million
// commands in one pipeline, and producers that outrun the disk. The broker's memory stays within a
// bound, and a well-behaved client is served throughout.
// It is not parallel: it takes a gigabyte of memory and ten thousand connections.
func TestOverloadIsBounded(t *testing.T) {
	const (
		idle       = 10_000
		memory     = 512 << 20
		input      = 128 << 20
		residentMB = 1000 // server.memory_bytes, RocksDB's memory, and the overshoot under load
	)
	b := kit.Serve(t, "--server.maxclients", "10400", "--server.memory_bytes", fmt.Sprint(memory), "--server.input_bytes_max", fmt.Sprint(input),
		"--storage.mode", "low_space")
	admin := kit.Connect(t, b.Addr(), 2)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "flood")
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "calm", "VISIBILITY", 3_600_000) // no lease ends within the test
	for range idle {
		idler, err := net.Dial("tcp", b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { idler.Close() })
	}
	o := overload{t: t, addr: b.Addr()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 20 {
		o.Go(func() { o.hog(ctx) })
		o.Go(func() { o.deaf(ctx) })
	}
	for range 4 {
		o.Go(func() { o.flood(ctx) })
	}
	piped := make(chan error, 1)
	o.Go(func() { piped <- o.million() })
	served := 0
	var failed error
	for done := false; !done || served < 50; served++ {
		kit.Do(t, admin, "FILA.ENQUEUE", "calm", served)
		if d := one(t, admin, "calm"); d.payload != fmt.Sprint(served) {
			t.Fatalf("got %s, want %d", d.payload, served)
		}
		select {
		case failed = <-piped:
			done = true
		default:
		}
	}
	testkit.Eventually(t, "a long command is refused", func() bool { return o.refused.Load() > 0 })
	use, err := proc.UseOf(b.PID())
	cancel()
	o.Wait()
	switch {
	case failed != nil:
		t.Errorf("a million commands: %v", failed)
	case err != nil:
		t.Error(err)
	case use.Peak > residentMB<<20:
		t.Errorf("%d MiB were in memory, want at most %d", use.Peak>>20, residentMB)
	}
	t.Logf("at most %d MiB in memory, a calm client was served %d times, %d long commands were refused, %d messages of the flood", use.Peak>>20, served, o.refused.Load(), o.flooded.Load())
}

type overload struct {
	sync.WaitGroup
	t       *testing.T
	addr    string
	refused atomic.Int64
	flooded atomic.Int64
}

// dial opens a connection that closes with the context.
func (o *overload) dial(ctx context.Context) net.Conn {
	c, err := net.Dial("tcp", o.addr)
	if err != nil {
		o.t.Error(err)
		return nil
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return c
}

// hog sends a command of 32 MiB except for its end.
func (o *overload) hog(ctx context.Context) {
	c := o.dial(ctx)
	if c == nil {
		return
	}
	const size = 32<<20 - 1000
	if _, err := fmt.Fprintf(c, "*3\r\n$12\r\nFILA.ENQUEUE\r\n$5\r\nflood\r\n$%d\r\n", size); err != nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.CopyN(c, zeros{}, size-1) // the broker may close the connection
	}()
	answer := make([]byte, 5)
	if _, err := io.ReadFull(c, answer); err == nil && string(answer) == "-OOM " {
		o.refused.Add(1)
	}
	<-ctx.Done()
	<-sent
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// deaf requests long replies and does not read them.
func (o *overload) deaf(ctx context.Context) {
	c := o.dial(ctx)
	if c == nil {
		return
	}
	echo := fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$65536\r\n%s\r\n", strings.Repeat("x", 65536))
	for range 4000 {
		if _, err := io.WriteString(c, echo); err != nil {
			return
		}
	}
}

// flood enqueues as fast as it can, reading the replies.
func (o *overload) flood(ctx context.Context) {
	c := o.dial(ctx)
	if c == nil {
		return
	}
	go func() {
		n, _ := io.Copy(io.Discard, c)
		o.flooded.Add(n / 42) // length of an id as a bulk string
	}()
	enqueue := strings.Repeat(fmt.Sprintf("*3\r\n$12\r\nFILA.ENQUEUE\r\n$5\r\nflood\r\n$16384\r\n%s\r\n", strings.Repeat("x", 16384)), 16)
	for sent := 0; sent < 200<<20; sent += len(enqueue) {
		if _, err := io.WriteString(c, enqueue); err != nil {
			return
		}
	}
}

// million sends a million commands without waiting for replies, which it reads concurrently.
func (o *overload) million() error {
	const commands = 1_000_000
	c, err := net.Dial("tcp", o.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(4 * testkit.Patience())); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, strings.NewReader(strings.Repeat("PING\r\n", commands)))
		sent <- err
	}()
	n, err := io.CopyN(io.Discard, c, commands*int64(len("+PONG\r\n")))
	if err != nil {
		return errors.Join(fmt.Errorf("%d bytes of answers", n), err)
	}
	return <-sent
}
