package commands

import (
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

// defaultUser is whom a connection speaks for that has not said.
const defaultUser = acl.DefaultUser

// strikesMax is how often a connection may fail to authenticate before it is
// closed: whoever guesses has to connect anew each time.
const strikesMax = 8

func auth() Spec {
	return Spec{
		Name: "AUTH", Secret: true, Group: "connection", Since: "1.0.0", Complexity: "O(N) where N is the number of the user's passwords",
		Summary:  "Authenticates the connection.",
		Differs:  "The eighth failure on one connection closes it.",
		Flags:    []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Args:     []Arg{{Name: "username", Type: String, Optional: true}, {Name: "password", Type: String}},
		Examples: []Example{{"AUTH default anything", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !in.has("username") && s.handler.OpenToAll() {
				return &refusal{"ERR", "AUTH <password> called without any password configured for the default user. " +
					"Are you sure your configuration is correct?"}
			}
			user := in.bytes("username")
			if user == nil {
				user = []byte(defaultUser)
			}
			if err := s.authenticate(user, in.bytes("password")); err != nil {
				return err
			}
			w.OK()
			return nil
		},
	}
}

// authenticate makes the session speak for the user. A failure leaves it as it
// was.
func (s *Session) authenticate(user, password []byte) error {
	a := s.handler.users.Authenticate(string(user), password)
	if a == nil {
		s.deny(acl.DeniedAuth, "AUTH", clip(user))
		s.handler.failures.note(s)
		if s.strikes++; s.strikes >= strikesMax {
			s.closing = true
		}
		return &refusal{"WRONGPASS", "invalid username-password pair or user is disabled."}
	}
	s.become(a)
	return nil
}

// become makes the session speak for the user of the account.
func (s *Session) become(a *acl.Account) {
	s.account.Store(a)
	s.setAuthed(true)
}

// arrive makes the session that of a client which has just connected: it speaks
// for the user its certificate names, else for the default one.
func (s *Session) arrive() {
	if s.handler.cfg.CertificateUsers {
		if a := s.handler.users.Account(s.conn.CertificateName()); a != nil {
			if u := a.User(); u != nil && u.Enabled() {
				s.become(a)
				return
			}
		}
	}
	s.account.Store(s.handler.anybody)
	s.setAuthed(s.handler.OpenToAll())
}

func (s *Session) setAuthed(ok bool) {
	s.authed = ok
	s.conn.SetAuthenticated(ok)
}

// userName is for whom the session speaks. It may be asked of another's session.
func (s *Session) userName() string {
	if u := s.account.Load().User(); u != nil {
		return u.Name()
	}
	return "(deleted)"
}

// OpenToAll tells whether a client need not authenticate: the default user is on
// and has no password.
func (h *Handler) OpenToAll() bool { return h.anybody.User().Open() }
