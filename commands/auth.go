package commands

import (
	"crypto/sha256"
	"crypto/subtle"

	"github.com/faisca/fila/resp"
)

// defaultUser is the one there is.
const defaultUser = "default"

func auth() Spec {
	return Spec{
		Name: "AUTH", Secret: true, Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Authenticates the connection.",
		Flags:    []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Args:     []Arg{{Name: "username", Type: String, Optional: true}, {Name: "password", Type: String}},
		Examples: []Example{{"AUTH default anything", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !in.has("username") && s.handler.cfg.Password == "" {
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

// authenticate compares in a time that says nothing about the password, not even
// its length: only digests are compared. Without a password any will do, as in
// Redis.
func (s *Session) authenticate(user, password []byte) error {
	want := s.handler.cfg.Password
	given, right := sha256.Sum256(password), sha256.Sum256([]byte(want))
	match := subtle.ConstantTimeCompare(given[:], right[:]) == 1
	if string(user) != defaultUser || !match && want != "" {
		return &refusal{"WRONGPASS", "invalid username-password pair or user is disabled."}
	}
	s.setAuthed(true)
	return nil
}
