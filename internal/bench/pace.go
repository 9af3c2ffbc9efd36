package bench

import (
	"runtime"
	"sync"
	"time"
)

// pacer tells when the batches of an open loop are due. Whoever is free takes the next
// one; what nobody is free for waits, and its latency grows meanwhile.
type pacer struct {
	m     *meter
	each  time.Duration
	times chan time.Duration
	quit  chan struct{}
	once  sync.Once
}

// dueMax is how many batches may be overdue. At more the server is hopelessly behind.
const dueMax = 1 << 20

func newPacer(m *meter, seconds float64) *pacer {
	each := time.Duration(seconds * float64(time.Second))
	return &pacer{m: m, each: max(each, 1), times: make(chan time.Duration, dueMax), quit: make(chan struct{})}
}

// run is a thread of its own: Go's timers are exact to a millisecond only when a
// program has nothing else to do, and that would be measured as the server's.
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
