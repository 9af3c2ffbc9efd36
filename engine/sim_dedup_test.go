package engine

import (
	"slices"
	"time"
)

// oracleName is a message that was enqueued with a deduplication id.
type oracleName struct {
	name string // queue and id
	tag  string
	at   time.Time // by the engine's clock
	// since is the real time that has passed, also when the clock was set back.
	since time.Duration
}

// named records that the engine accepted a message as the first of its name. A crash may
// lose it until the reply.
func (o *oracle) named(tag, queue, name string, at time.Time) {
	o.names[tag] = oracleName{queue + "/" + name, tag, at, at.Sub(time.Unix(0, 0)) + o.setBack}
}

// seen records that the message of a tag was certainly enqueued: no other message of its
// name may have been accepted within the window.
func (o *oracle) seen(tag string) {
	n, ok := o.names[tag]
	if !ok || slices.Contains(o.look.purging, tag[:2]) {
		return
	}
	for _, other := range o.known[n.name] {
		if other.tag == tag {
			return
		}
		if apart := (n.since - other.since).Abs(); apart < o.window {
			o.fail("%s and %s are both %s, %v apart", other.tag, tag, n.name, apart)
		}
	}
	o.known[n.name] = append(o.known[n.name], n)
}

// namesLost records that a power loss may have lost ids that were not synced.
func (o *oracle) namesLost() {
	clear(o.names)
	clear(o.known)
	o.lossy = true
}

// repeated checks an enqueue that was answered with the id of an earlier message of its
// name.
func (o *oracle) repeated(tag string, id ID, queue, name string, at time.Time) {
	o.trace("%s is a repetition of %s", tag, id)
	delete(o.unknown, tag)
	o.signals.resolved(tag, signalEnqueued, false, o.now)
	delete(o.names, tag)
	m := o.byID[id]
	if m == nil || m.tag == "" {
		return // the enqueue of that message was not answered
	}
	first, ok := o.names[m.tag]
	if !ok && o.lossy {
		return
	}
	if !ok || first.name != queue+"/"+name {
		o.fail("%s as %s was answered with %s, which is not its first", tag, name, m.tag)
		return
	}
	if !at.Before(first.at.Add(o.window)) {
		o.fail("%s as %s was answered with %s, which is older than the window", tag, name, m.tag)
	}
}
