package bench

import (
	"runtime"
	"sync"
	"time"
)

// pacer schedules the batches of an open loop. A free session takes the next due batch;
// while none is free, due batches wait and their latency grows.
type pacer struct {
	m     *meter
	each  time.Duration
	times chan time.Duration
	quit  chan struct{}
	once  sync.Once
}

// dueMax is how many batches may be overdue before the round fails.
const dueMax = 1 << 20

func newPacer(m *meter, seconds float64) *pacer {
	each := time.Duration(seconds * float64(time.Second))
	return &pacer{m: m, each: max(each, 1), times: make(chan time.Duration, dueMax), quit: make(chan struct{})}
}

// run uses a thread of its own: Go's timers are accurate to a millisecond only in an
// otherwise idle program, and the error would count as the server's.
func (p *pacer) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exactSleep()
	for at := p.m.now(); !p.m.ended.Load(); at += p.each {
		if d := at - p.m.now(); d > 0 {
			sleep(d)
		}
		select {
		case p.times <- at:
		case <-p.quit:
			return
		}
	}
	p.stop()
}

// next waits until a batch is due; false when there will be none.
func (p *pacer) next() (time.Duration, bool) {
	select {
	case <-p.quit:
		return 0, false
	default:
	}
	select {
	case at := <-p.times:
		return at, true
	case <-p.quit:
		return 0, false
	}
}

func (p *pacer) stop() { p.once.Do(func() { close(p.quit) }) }
