package commands

import (
	"bytes"
	"slices"

	"github.com/faisca/fila/resp"
)

// This file is the help for caching in clients. No reply of Fila's may be cached,
// so no invalidation is ever owed, and a client that has asked for them is told
// the truth by silence. What it has asked for is kept, as it may ask for that too.

// tracking is what CLIENT TRACKING has set; nil: it is off.
type tracking struct {
	redirect                     int64 // 0: to the connection itself
	bcast, optIn, optOut, noLoop bool
	// caching is set by CLIENT CACHING for the next command that is none of CLIENT.
	caching  bool
	prefixes [][]byte
}

func clientTracking() Spec {
	return Spec{
		Name: "TRACKING", Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Summary: "Asks to be told when something cached is out of date. Nothing here may be cached, so no message ever comes.",
		Differs: "Never sends an invalidation: none is ever owed.",
		Flags:   connectionFlags(),
		Args: []Arg{
			onOff(),
			{Name: "client-id", Type: Integer, Token: "REDIRECT", Optional: true},
			{Name: "prefix", Type: String, Token: "PREFIX", Optional: true, Multiple: true},
			{Name: "bcast", Type: PureToken, Token: "BCAST", Optional: true},
			{Name: "optin", Type: PureToken, Token: "OPTIN", Optional: true},
			{Name: "optout", Type: PureToken, Token: "OPTOUT", Optional: true},
			{Name: "noloop", Type: PureToken, Token: "NOLOOP", Optional: true},
		},
		Examples: []Example{{"CLIENT TRACKING ON OPTIN", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if in.has("off") {
				s.track(nil)
				w.OK()
				return nil
			}
			t, err := s.readTracking(in)
			if err != nil {
				return err
			}
			s.track(t)
			w.OK()
			return nil
		},
	}
}

// track sets the mode, and publishes of it what CLIENT LIST shows.
func (s *Session) track(t *tracking) {
	s.tracking = t
	s.introduce(func(i *identity) { i.redirect, i.bcast = t.target(), t != nil && t.bcast })
}

// trackingFlags are those of the connection's line in CLIENT LIST.
func (i *identity) trackingFlags() string {
	switch {
	case i.bcast:
		return "tB"
	case i.redirect >= 0:
		return "t"
	default:
		return ""
	}
}

// readTracking checks the options, which Redis lets not all go together.
func (s *Session) readTracking(in *input) (*tracking, error) {
	t := &tracking{
		redirect: in.integer("redirect", 0), bcast: in.has("bcast"), optIn: in.has("optin"), optOut: in.has("optout"), noLoop: in.has("noloop"),
	}
	for _, o := range in.occurs { // PREFIX alone may be repeated
		t.prefixes = append(t.prefixes, bytes.Clone(in.args[o.first]))
	}
	old := s.tracking
	switch {
	case in.has("redirect") && !s.handler.connected(t.redirect):
		return nil, &refusal{"ERR", "The client ID you want redirect to does not exist"}
	case len(t.prefixes) > 0 && !t.bcast:
		return nil, &refusal{"ERR", "PREFIX option requires BCAST mode to be enabled"}
	case old != nil && old.bcast != t.bcast:
		return nil, errSwitch("BCAST mode on/off")
	case t.bcast && (t.optIn || t.optOut):
		return nil, &refusal{"ERR", "OPTIN and OPTOUT are not compatible with BCAST"}
	case t.optIn && t.optOut:
		return nil, &refusal{"ERR", "You can't specify both OPTIN mode and OPTOUT mode"}
	case old != nil && (t.optIn && old.optOut || t.optOut && old.optIn):
		return nil, errSwitch("OPTIN/OPTOUT mode")
	}
	var before [][]byte
	if old != nil {
		before = old.prefixes
	}
	if err := checkPrefixes(t.prefixes, before); err != nil {
		return nil, err
	}
	t.prefixes = append(t.prefixes, before...)
	slices.SortFunc(t.prefixes, bytes.Compare)
	return t, nil
}

func errSwitch(what string) error {
	return &refusal{"ERR", "You can't switch " + what + " before disabling tracking for this client, and then re-enabling it with a different mode."}
}

// trackingPrefixesMax bounds what one connection makes Fila keep.
const trackingPrefixesMax = 128

// checkPrefixes refuses prefixes that overlap, with each other or with those of
// before.
func checkPrefixes(prefixes, before [][]byte) error {
	if len(prefixes)+len(before) > trackingPrefixesMax {
		return &refusal{"ERR", "too many prefixes: nothing here may be cached, so there is no need for them"}
	}
	for i, a := range prefixes {
		for _, b := range before {
			if bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a) {
				return errOverlap(a, "an existing", b)
			}
		}
		for _, b := range prefixes[i+1:] {
			if bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a) {
				return errOverlap(a, "another provided", b)
			}
		}
	}
	return nil
}

func errOverlap(a []byte, which string, b []byte) error {
	return &refusal{"ERR", "Prefix '" + clip(a) + "' overlaps with " + which + " prefix '" + clip(b) + "'. Prefixes for a single client must not overlap."}
}

// connected reports whether there is a connection of that number.
func (h *Handler) connected(id int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return id > 0 && h.sessions[uint64(id)] != nil
}

func clientCaching() Spec {
	return Spec{
		Name: "CACHING", Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Summary: "Says whether what the next command reads will be cached.",
		Differs: "Without effect: nothing here may be cached.",
		Flags:   connectionFlags(),
		Args: []Arg{{Name: "mode", Type: OneOf, Args: []Arg{
			{Name: "yes", Type: PureToken, Token: "YES"}, {Name: "no", Type: PureToken, Token: "NO"},
		}}},
		Examples: []Example{{"CLIENT TRACKING ON OPTIN", "OK"}, {"CLIENT CACHING YES", "OK"}},
		Loose:    true, // the mode counts before the word
		Local: func(s *Session, in *input, w *resp.Writer) error {
			t, yes, no := s.tracking, isToken(in.args[0], "YES"), isToken(in.args[0], "NO")
			switch {
			case t == nil || !t.optIn && !t.optOut && !t.bcast:
				return &refusal{"ERR", "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"}
			case yes && !t.optIn:
				return &refusal{"ERR", "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."}
			case no && !t.optOut:
				return &refusal{"ERR", "CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."}
			case !yes && !no:
				return &refusal{"ERR", "syntax error"}
			}
			t.caching = true
			w.OK()
			return nil
		},
	}
}

func clientGetRedir() Spec {
	return Spec{
		Name: "GETREDIR", Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Summary: "Returns to which connection invalidations are sent, 0 for this one, -1 while tracking is off.",
		Flags:   connectionFlags(), Examples: []Example{{"CLIENT GETREDIR", "(integer) -1"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Int(s.tracking.target())
			return nil
		},
	}
}

func (t *tracking) target() int64 {
	if t == nil {
		return -1
	}
	return t.redirect
}

func clientTrackingInfo() Spec {
	return Spec{
		Name: "TRACKINGINFO", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
		Summary:  "Returns what CLIENT TRACKING has set.",
		Flags:    connectionFlags(),
		Examples: []Example{{"CLIENT TRACKINGINFO", "1) \"flags\"\n2) 1) \"off\"\n3) \"redirect\"\n4) (integer) -1\n5) \"prefixes\"\n6) (empty array)"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			flags := s.tracking.flags()
			w.Map(3)
			w.BulkString("flags")
			w.Set(len(flags))
			for _, f := range flags {
				w.BulkString(f)
			}
			w.BulkString("redirect")
			w.Int(s.tracking.target())
			w.BulkString("prefixes")
			var prefixes [][]byte
			if s.tracking != nil {
				prefixes = s.tracking.prefixes
			}
			w.Array(len(prefixes))
			for _, p := range prefixes {
				w.Bulk(p)
			}
			return nil
		},
	}
}

func (t *tracking) flags() []string {
	if t == nil {
		return []string{"off"}
	}
	flags := []string{"on"}
	for _, f := range []struct {
		set  bool
		name string
	}{
		{t.bcast, "bcast"}, {t.optIn, "optin"}, {t.optIn && t.caching, "caching-yes"},
		{t.optOut, "optout"}, {t.optOut && t.caching, "caching-no"}, {t.noLoop, "noloop"},
	} {
		if f.set {
			flags = append(flags, f.name)
		}
	}
	return flags
}
