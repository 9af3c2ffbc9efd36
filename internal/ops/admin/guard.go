package admin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// strictHeaders adds the headers that keep a browser from doing with a reply what it is not
// for. They are on every reply, also on errors.
func strictHeaders(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; " +
		"form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// guardBody bounds the size of a body and the time to send it. The connection ends with a
// request whose body is not read, see bodyRead: else net/http would wait for it, before the
// reply, to read the next request.
func guardBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
			w.Header().Set("Connection", "close")
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
				fail(w, http.StatusInternalServerError, "ERR", err.Error())
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bodyRead undoes what guardBody did for a body that was read: from there on its deadline
// would end the request.
func bodyRead(w http.ResponseWriter) error {
	w.Header().Del("Connection")
	return http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// guardHost refuses a request for a name that is not that of the broker. A page of an
// attacker can give its own name the address of this machine (DNS rebinding), and is then
// of one origin with what it asks for. It cannot make a browser ask for another name than
// its own, nor for an address.
func (s *Server) guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.known(r.Host) {
			fail(w, http.StatusForbidden, "FORBIDDEN", "the host of the request is not in admin.hosts")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// known reports whether a request may ask for a host.
func (s *Server) known(host string) bool {
	name := hostName(host)
	if name == "localhost" || (*s.hosts.Load())[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// hostName returns a host without its port, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// guardOrigin refuses requests that a browser sends for a page of another origin: those
// that change something by http.CrossOriginProtection, and those that only read because
// each stream takes a place.
func (s *Server) guardOrigin(next http.Handler) http.Handler {
	deny := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, "FORBIDDEN", "the request comes from a page of another origin")
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(deny)
	changing := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if foreign(r) {
			deny(w, r)
			return
		}
		changing.ServeHTTP(w, r)
	})
}

// foreign reports whether a browser says that a request is for a page of another origin. Not
// every browser does, and for navigation none may.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		u, err := url.Parse(origin)
		return err != nil || u.Host != r.Host
	case "cross-site", "same-site":
		// A link on another page may lead here, as far as it shows a page.
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Method != http.MethodGet
	}
	return true
}
