package admin

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/faisca/fila/internal/client"
)

const (
	penaltyFirst    = time.Second
	penaltyLongest  = time.Minute
	penaltyForgiven = 10 * time.Minute // without a failure after the end of the last penalty
	attemptsMax     = 4096             // addresses with failures; beyond it the one whose penalty ends first is dropped
	networkBits     = 64               // of an IPv6 address: a client has all of the rest
)

// attempts are the failures to authenticate of each address. A failure costs the address a
// second in which its passwords are not looked at, and twice as long each further time, up
// to a minute. A success forgives nothing: it may be of another user behind the address,
// or of the attacker's own.
type attempts struct {
	mu     sync.Mutex
	failed map[netip.Addr]penalty
}

// penalty is what an address has to wait for.
type penalty struct {
	times int
	until time.Time
}

// try runs check, an attempt to authenticate, unless the address has to wait. One attempt is
// made at a time, so that none is made beside one that is about to fail; it takes a fraction of a millisecond.
func (a *attempts) try(from netip.Addr, check func() error) error {
	from = network(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if wait := a.failed[from].until.Sub(now); wait > 0 {
		f := failed(http.StatusTooManyRequests, "WAIT", "too many wrong passwords came from this address, try again later")
		f.retry = wait
		return f
	}
	err := check()
	if client.Refused(err, "WRONGPASS") {
		a.add(from, now)
	}
	return err
}

// add counts a failure. The caller holds mu.
func (a *attempts) add(from netip.Addr, now time.Time) {
	p, known := a.failed[from]
	if known && now.Sub(p.until) > penaltyForgiven {
		p = penalty{}
	}
	if !known && len(a.failed) >= attemptsMax {
		a.dropOne()
	}
	if a.failed == nil {
		a.failed = map[netip.Addr]penalty{}
	}
	cost := penaltyLongest
	if p.times < 6 { // else the shift is beyond it
		cost = min(penaltyFirst<<p.times, penaltyLongest)
	}
	a.failed[from] = penalty{p.times + 1, now.Add(cost)}
}

// dropOne drops the address whose penalty ends first.
func (a *attempts) dropOne() {
	var first netip.Addr
	for addr, p := range a.failed {
		if !first.IsValid() || p.until.Before(a.failed[first].until) {
			first = addr
		}
	}
	delete(a.failed, first)
}

// network returns what counts as one address.
func network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(networkBits); err == nil {
			return p.Addr()
		}
	}
	return addr
}
