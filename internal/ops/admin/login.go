package admin

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/faisca/fila/internal/client"
)

// rights are what a user may do.
type rights struct {
	user             string
	commands         client.Map
	queues, channels string
}

// may reports whether the user may run a command.
func (r *rights) may(command string) bool { return r.commands.Int(command) == 1 }

// whoAmI asks for the rights of the connection's user.
func (c *conn) whoAmI(ctx context.Context) (rights, error) {
	reply, err := c.Do(ctx, "FILA.WHOAMI")
	if err != nil {
		return rights{}, err
	}
	m, _ := reply.(client.Map)
	commands, _ := m.Get("commands").(client.Map)
	return rights{m.Text("user"), commands, m.Text("queues"), m.Text("channels")}, nil
}

// about answers who the request speaks for, and what it may do.
func (s *Server) about(w http.ResponseWriter, r *http.Request) {
	if !s.requests.take() {
		refuse(w, r, busy("requests"))
		return
	}
	defer s.requests.leave()
	c, err := s.open(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer c.Close()
	me, err := c.whoAmI(r.Context())
	if err != nil {
		refuse(w, r, err)
		return
	}
	commands := make(client.Map, len(me.commands))
	for i, f := range me.commands {
		commands[i] = client.Field{Name: f.Name, Value: me.may(f.Name)}
	}
	answer(w, http.StatusOK, client.AppendJSON(nil, client.Map{
		{Name: "user", Value: me.user}, {Name: "version", Value: s.cfg.Version}, {Name: "session", Value: c.session != nil},
		{Name: "commands", Value: commands}, {Name: "queues", Value: me.queues}, {Name: "channels", Value: me.channels},
	}))
}

// login begins a session for the user and password of a form.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if s.cfg.OneUser {
		fail(w, http.StatusForbidden, "FORBIDDEN", "this dashboard speaks for the user that it was started with")
		return
	}
	if !s.logins.take() {
		refuse(w, r, busy("logins"))
		return
	}
	defer s.logins.leave()
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	if err := r.ParseForm(); err != nil || !r.PostForm.Has("password") {
		fail(w, http.StatusBadRequest, "ERR", "the body must be a form with user and password")
		return
	}
	if err := bodyRead(w); err != nil {
		refuse(w, r, err)
		return
	}
	user, password := r.PostForm.Get("user"), r.PostForm.Get("password")
	if user == "" {
		user = defaultUser
	}
	c, err := s.authenticate(r, user, password, sessionName)
	if err != nil {
		refuse(w, r, err)
		return
	}
	s.endSession(r) // of the user before
	http.SetCookie(w, cookie(r, s.sessions.begin(user, c.Conn, c.over), int(sessionLife.Seconds())))
	w.WriteHeader(http.StatusNoContent)
}

// logout ends the session of a request, if it has one.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.endSession(r)
	http.SetCookie(w, cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) endSession(r *http.Request) {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		if session := s.sessions.find(c.Value); session != nil {
			s.sessions.end(session)
		}
	}
}

// secure reports whether the browser speaks TLS, with this listener or with a proxy in front
// of it. A client that only says so hurts itself alone: its cookie is then not sent.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// cookieName returns the name of the session's cookie. Browsers take one that begins with
// __Host- over TLS alone, and from this host alone. They send cookies to all ports of a host: the
// port of the listener in the name keeps the sessions of several brokers apart.
func cookieName(r *http.Request) string {
	name := "fila-session"
	if secure(r) {
		name = "__Host-" + name
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		name += "-" + strconv.Itoa(local.Port)
	}
	return name
}

// cookie returns the session's cookie; age is in seconds, negative to delete it.
func cookie(r *http.Request, token string, age int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure where there is TLS: elsewhere the browser would not send it
		Name: cookieName(r), Value: token, Path: "/", MaxAge: age, Secure: secure(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}
