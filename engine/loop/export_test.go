package loop

// Bounds that tests reach.
const (
	EventsMax  = eventsMax
	StallAfter = stallAfter
	HeldStep   = heldStep
)
