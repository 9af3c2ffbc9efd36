package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// muxed is a link within the process: streams are opened at near and accepted at far.
type muxed struct {
	t         *testing.T
	near, far *session
	accepted  chan *stream
	writes    int // calls of Write at near
	mu        sync.Mutex
}

// countingConn counts calls of Write.
type countingConn struct {
	net.Conn
	m *muxed
}

func (c countingConn) Write(b []byte) (int, error) {
	c.m.mu.Lock()
	c.m.writes++
	c.m.mu.Unlock()
	return c.Conn.Write(b)
}

// withMux runs a test with simulated time.
func withMux(t *testing.T, test func(m *muxed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		m := &muxed{t: t, accepted: make(chan *stream, 100)}
		m.near = newSession(countingConn{near, m}, nil)
		m.far = newSession(far, func(st *stream) { m.accepted <- st })
		defer func() {
			m.near.close()
			m.far.close()
			synctest.Wait()
		}()
		test(m)
	})
}

// open opens a stream and sends its first byte.
func (m *muxed) open() (near, far *stream) {
	m.t.Helper()
	near, err := m.near.open()
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := near.Write([]byte("!")); err != nil {
		m.t.Fatal(err)
	}
	far = <-m.accepted
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
		m.t.Fatal(err)
	}
	return near, far
}

func (m *muxed) wantStreams(n int) {
	m.t.Helper()
	synctest.Wait()
	for _, s := range []*session{m.near, m.far} {
		s.mu.Lock()
		if len(s.streams) != n {
			m.t.Errorf("an end has %d streams, want %d", len(s.streams), n)
		}
		s.mu.Unlock()
	}
}

func TestStreamsCarryTheirBytesBothWays(t *testing.T) {
	withMux(t, func(m *muxed) {
		var wg sync.WaitGroup
		for i := range uint64(20) {
			near, far := m.open()
			for _, way := range [][2]*stream{{near, far}, {far, near}} {
				want := make([]byte, 3*windowMax+int(i))
				rng := rand.New(rand.NewPCG(i, 1))
				for at := range want {
					want[at] = byte(rng.Uint32())
				}
				wg.Go(func() {
					for rest := want; len(rest) > 0; {
						n := min(len(rest), 1+rand.New(rand.NewPCG(i, uint64(len(rest)))).IntN(100_000))
						if _, err := way[0].Write(rest[:n]); err != nil {
							t.Error(err)
							return
						}
						rest = rest[n:]
					}
					if err := way[0].CloseWrite(); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					if got, err := io.ReadAll(way[1]); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
					}
				})
			}
		}
		wg.Wait()
		m.wantStreams(20)
	})
}

// Streams are used in another order than they were opened in.
func TestTheFirstBytesOfAStreamOpenIt(t *testing.T) {
	withMux(t, func(m *muxed) {
		var streams []*stream
		for range 3 {
			st, err := m.near.open()
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, st)
		}
		for _, i := range []int{2, 0, 1} {
			want := []byte{byte(i)}
			if _, err := streams[i].Write(want); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			got := make([]byte, 1)
			select {
			case far := <-m.accepted:
				if _, err := io.ReadFull(far, got); err != nil || got[0] != want[0] {
					t.Errorf("%v, %v", got, err)
				}
			default:
				t.Fatalf("stream %d was not accepted", i)
			}
		}
		m.wantStreams(3)
	})
}

func TestAStreamThatIsNotReadDelaysNoOther(t *testing.T) {
	withMux(t, func(m *muxed) {
		slow, slowFar := m.open()
		quick, quickFar := m.open()
		done := make(chan int, 1)
		go func() {
			n, _ := slow.Write(make([]byte, 2*windowMax)) // n tells
			done <- n
		}()
		synctest.Wait()
		slowFar.mu.Lock()
		if n := slowFar.in.Len(); n > windowMax || n < windowMax/2 {
			t.Errorf("%d bytes wait, the window is %d", n, windowMax)
		}
		slowFar.mu.Unlock()
		if _, err := quick.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		if n, err := quickFar.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("%q, %v", b[:n], err)
		}
		select {
		case n := <-done:
			t.Errorf("%d bytes are written", n)
		default:
		}
		if _, err := io.ReadFull(slowFar, make([]byte, 2*windowMax)); err != nil || <-done != 2*windowMax {
			t.Error(err)
		}
	})
}

func TestTheEndsOfAStream(t *testing.T) {
	withMux(t, func(m *muxed) {
		near, far := m.open()
		if err := errors.Join(near.CloseWrite(), near.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after CloseWrite: %v", err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a read at the end: %v", err)
		}
		if _, err := far.Write([]byte("last words")); err != nil {
			t.Error(err)
		}
		if err := errors.Join(far.Close(), far.Close()); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(near); err != nil || string(got) != "last words" {
			t.Errorf("%q, %v", got, err)
		}
		if err := near.Close(); err != nil {
			t.Error(err)
		}
		m.wantStreams(0)

		unused, err := m.near.open()
		if err != nil {
			t.Fatal(err)
		}
		if err := unused.Close(); err != nil {
			t.Error(err)
		}
		m.wantStreams(0)

		near, far = m.open()
		full := make(chan error, 1)
		go func() {
			_, err := near.Write(make([]byte, 2*windowMax))
			full <- err
		}()
		synctest.Wait()
		if err := far.Close(); err != nil { // it is not read any more
			t.Error(err)
		}
		if err := <-full; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write to a stream that is closed: %v", err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read of a closed stream: %v", err)
		}
		if err := near.Close(); err != nil {
			t.Error(err)
		}
		m.wantStreams(0)
	})
}

func TestDeadlinesOfStreams(t *testing.T) {
	withMux(t, func(m *muxed) {
		near, far := m.open()
		began := time.Now()
		if err := far.SetDeadline(began.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a read: %v after %v", err, time.Since(began))
		}
		if n, err := far.Write(make([]byte, 2*windowMax)); !errors.Is(err, os.ErrDeadlineExceeded) || n > windowMax {
			t.Errorf("a write of %d bytes: %v", n, err)
		}
		if err := far.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = near.Write([]byte("x")) }() // the read shows it
		if n, err := far.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("without a deadline: %d, %v", n, err)
		}
		waits := make(chan error, 1)
		go func() {
			_, err := far.Read(make([]byte, 1))
			waits <- err
		}()
		synctest.Wait()
		if err := far.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := <-waits; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read whose deadline was moved into the past: %v", err)
		}
	})
}

// Each Send sets a deadline, and hardly any waits for it.
func TestADeadlineThatIsNotWaitedForCostsNothing(t *testing.T) {
	withMux(t, func(m *muxed) {
		near, _ := m.open()
		if n := testkit.Allocations(100, func() {
			if err := near.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("a deadline takes %v allocations", n)
		}
		if near.readAlarm != nil || near.writeAlarm != nil {
			t.Error("an alarm is armed without a wait")
		}
	})
}

// A deadline that is set during a wait replaces the one that the wait began with, be it sooner or later.
func TestAWaitFollowsItsDeadline(t *testing.T) {
	withMux(t, func(m *muxed) {
		_, far := m.open()
		for _, limits := range [][2]time.Duration{{time.Minute, time.Hour}, {time.Hour, time.Minute}, {0, time.Minute}, {time.Minute, time.Minute}} {
			began := time.Now()
			at := time.Time{}
			if limits[0] > 0 {
				at = began.Add(limits[0])
			}
			if err := far.SetReadDeadline(at); err != nil {
				t.Fatal(err)
			}
			ended := make(chan time.Duration, 1)
			go func() {
				_, err := far.Read(make([]byte, 1))
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a read ends with %v", err)
				}
				ended <- time.Since(began)
			}()
			synctest.Wait()
			if err := far.SetReadDeadline(began.Add(limits[1])); err != nil {
				t.Fatal(err)
			}
			if took := <-ended; took != limits[1] {
				t.Errorf("from %v to %v: it ended after %v", limits[0], limits[1], took)
			}
		}
	})
}

func TestALinkThatEndsEndsItsStreams(t *testing.T) {
	withMux(t, func(m *muxed) {
		near, far := m.open()
		if _, err := near.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		m.near.close()
		synctest.Wait()
		if !m.near.ended() || !m.far.ended() {
			t.Error("an end lives")
		}
		b := make([]byte, 10)
		if n, err := far.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("what was received: %q, %v", b[:n], err)
		}
		if _, err := far.Read(b); err == nil {
			t.Error("a read without a link")
		}
		if _, err := near.Write(b); err == nil {
			t.Error("a write without a link")
		}
		if _, err := m.near.open(); err == nil {
			t.Error("a stream without a link")
		}
	})
}

func TestASilentLinkEndsAndAnIdleOneDoesNot(t *testing.T) {
	withMux(t, func(m *muxed) {
		time.Sleep(time.Hour)
		if m.near.ended() || m.far.ended() {
			t.Error("an idle link has ended")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }() // it reads, and sends nothing
		s := newSession(near, nil)
		time.Sleep(linkSilence - time.Millisecond)
		if s.ended() {
			t.Error("ended too early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !s.ended() {
			t.Error("a silent link lives")
		}
		_ = far.Close()
	})
}

// What ends a link is never taken for a deadline of the reader or writer of a stream: a reader that has set
// none, or its own, would read again for ever.
func TestTheEndOfASilentLinkIsNoDeadlineOfItsStreams(t *testing.T) {
	for name, partner := range map[string]func(far net.Conn){
		"reads and sends nothing": func(far net.Conn) { _, _ = io.Copy(io.Discard, far) },
		"does not read":           func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				go partner(far)
				s := newSession(near, nil)
				st, err := s.open()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := st.Write([]byte("!")); err != nil {
					t.Fatal(err)
				}
				_, err = st.Read(make([]byte, 1))
				if err == nil || isTimeout(err) {
					t.Errorf("a read ends with %v", err)
				}
				if _, err = st.Write([]byte("!")); err == nil || isTimeout(err) {
					t.Errorf("a write ends with %v", err)
				}
				_ = far.Close()
			})
		})
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || ok && timeout.Timeout()
}

func TestFramesInShortSuccessionLeaveWithOneWrite(t *testing.T) {
	withMux(t, func(m *muxed) {
		var streams []*stream
		for range 50 {
			near, _ := m.open()
			streams = append(streams, near)
		}
		synctest.Wait()
		m.mu.Lock()
		before := m.writes
		m.mu.Unlock()
		// All while the link has its lock: the writer cannot run in between.
		m.near.mu.Lock()
		var wg sync.WaitGroup
		for _, st := range streams {
			wg.Go(func() {
				if _, err := st.Write([]byte("x")); err != nil {
					t.Error(err)
				}
			})
		}
		m.near.out = append(m.near.out, framePing, 0, 0, 0, 0, 0, 0, 0, 0)
		m.near.mu.Unlock()
		wg.Wait()
		synctest.Wait()
		if n := m.writes - before; n > 25 {
			t.Errorf("%d writes for 50 frames", n)
		}
	})
}

// frame makes a frame as it is sent.
func frame(kind byte, id, number uint32, data string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, id)
	return append(binary.BigEndian.AppendUint32(b, number), data...)
}

func TestWrongFramesEndTheLink(t *testing.T) {
	long := make([]byte, windowMax)
	for name, bad := range map[string][]byte{
		"kind 0":           frame(0, 1, 0, ""),
		"unknown kind":     frame(framePing+1, 1, 0, ""),
		"too many bytes":   frame(frameData, 1, windowMax+1, ""),
		"beyond a window":  append(frame(frameData, 1, windowMax, string(long)), frame(frameData, 1, 1, "x")...),
		"too large window": append(frame(frameData, 1, 1, "x"), frame(frameWindow, 1, 1, "")...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				s := newSession(far, func(*stream) {})
				go func() { _, _ = io.Copy(io.Discard, near) }() // pings
				_, _ = near.Write(bad)                           // it may end in between
				synctest.Wait()
				if !s.ended() {
					t.Error("the link lives")
				}
				_ = near.Close()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := newSession(far, nil)
		go func() { _, _ = io.Copy(io.Discard, near) }() // pings
		_, _ = near.Write(frame(frameData, 1, 1, "x"))   // it may end in between
		synctest.Wait()
		if !s.ended() {
			t.Error("an end that accepts no streams has one")
		}
		_ = near.Close()
	})
}

// echo sends back what a stream brings.
func echo(st *stream) {
	_, _ = io.Copy(st, st)
	_ = st.Close()
}

// FuzzFrames sends anything to a link.
func FuzzFrames(f *testing.F) {
	f.Add(frame(frameData, 1, 5, "hello"))
	f.Add(append(frame(frameData, 1, 1, "x"), frame(frameClose, 1, 0, "")...))
	f.Add(append(frame(frameData, 2, 0, ""), frame(frameEnd, 1, 0, "")...))
	f.Add(append(frame(frameWindow, 7, 100, ""), frame(frameWindow, 7, windowMax, "")...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		s := newSession(far, echo)
		go func() { _, _ = io.Copy(io.Discard, near) }()
		_, _ = near.Write(sent) // the link may end in between
		_ = near.Close()
		<-s.over
	})
}

// The end of a link that is ended in order holds for all its streams, but for those that were closed without it.
func TestALinkIsEndedInOrder(t *testing.T) {
	withMux(t, func(m *muxed) {
		open, far := m.open()
		closed, farClosed := m.open()
		fresh, err := m.near.open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write([]byte("reply")); err != nil {
			t.Fatal(err)
		}
		if err := farClosed.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.far.finish()
		if took := time.Since(began); took != 0 {
			t.Errorf("the other end closes after %v", took)
		}
		for what, x := range map[string]struct {
			st    *stream
			reply string
			want  bool
		}{"open": {open, "reply", true}, "closed": {closed, "", false}, "without bytes": {fresh, "", true}} {
			reply, n := make([]byte, 10), 0
			if x.st != fresh { // the link does not know it
				n, _ = x.st.Read(reply)
			}
			if string(reply[:n]) != x.reply || x.st.answered() != x.want {
				t.Errorf("%s: %q, answered: %v", what, reply[:n], x.st.answered())
			}
		}
		if _, err := open.Write([]byte("more")); err == nil {
			t.Error("a stream takes bytes for a link that has ended")
		}
	})
}

// An earlier version does not know of this end.
func TestALinkIsClosedIfTheOtherEndDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, near) }() // until the end of the link
		began := time.Now()
		newSession(far, func(*stream) {}).finish()
		if took := time.Since(began); took != finishTime {
			t.Errorf("it is closed after %v, want %v", took, finishTime)
		}
	})
}
