package cli

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// adminSettings are about the HTTP listener for operators, and what these see of queues and
// fairness keys.
func adminSettings(c *Admin) []setting {
	return []setting{
		entry("admin.listen_addr", text{to: &c.ListenAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"Where operators reach the broker over HTTP: health, metrics, commands and live figures, see [admin](admin.md). Empty: nowhere. An address "+
				"that other machines can reach is refused unless clients have to authenticate, and without TLS unless `admin.plain` is true."),
		entry("admin.tls", boolean{to: &c.TLS},
			"Whether it is HTTPS, with the files of `tls.*`. `tls.auth_clients` and `tls.auth_clients_user` hold there, too."),
		entry("admin.plain", boolean{to: &c.Plain},
			"Allows HTTP without TLS at an address that other machines can reach. Passwords and sessions can then be read on the way: "+
				"only for a proxy that does TLS in front of it."),
		entry("admin.hosts", lines{to: &c.Hosts, check: checkHost},
			"Names under which browsers and programs may ask for it, as in `fila.example.com`, without a port. `localhost` and addresses always may. "+
				"Other names are refused, because the page of an attacker could give itself the address of this machine. SIGHUP reads them again."),
		entry("admin.prefix", text{to: &c.Prefix, def: "/", check: checkPrefix, of: "path", says: "a path that begins and ends with a slash"},
			"What all paths begin with, as in `/fila/`, behind a proxy that serves others as well."),
		entry("admin.figures_ms", millis(&c.FiguresAge, 5000, 100, 60*60*1000),
			"Age up to which the figures of fairness keys in `FILA.FIGURES` and `FILA.KEYS` with `BY` are shown again. Older ones are found by a look at all keys, "+
				"0.1 s of the broker's time for a million in slices of less than a millisecond, for all clients together and only when one asks."),
	}
}

// checkHost checks the name of a host.
func checkHost(s string) error {
	if s == "" || strings.ContainsAny(s, "/:@, ") {
		return fmt.Errorf("must hold names of hosts as in fila.example.com, one in a line, without a port, not %q", s)
	}
	return nil
}

// checkPrefix checks the beginning of paths.
func checkPrefix(s string) error {
	if !strings.HasPrefix(s, "/") || !strings.HasSuffix(s, "/") || strings.Contains(s, "//") || strings.ContainsAny(s, "?#%{} ") {
		return fmt.Errorf("must begin and end with a slash as in /fila/, not %q", s)
	}
	return nil
}

// checkAdmin is about the settings of the HTTP listener that need others.
func (c *Config) checkAdmin() error {
	a := &c.Admin
	switch {
	case a.ListenAddr == "":
		return nil
	case a.TLS && (c.TLS.CertFile == "" || c.TLS.KeyFile == ""):
		return errors.New("admin.tls needs tls.cert_file and tls.key_file")
	case a.TLS && c.TLS.CAFile == "" && c.TLS.AuthClients != ClientsNeedNot:
		return fmt.Errorf("admin.tls with tls.auth_clients %s: set tls.ca_file, or tls.auth_clients to no", c.TLS.AuthClients)
	case !a.TLS && !a.Plain && !loopback(a.ListenAddr):
		return fmt.Errorf("admin.listen_addr %s can be reached from other machines without TLS: set admin.tls, listen on 127.0.0.1, "+
			"or set admin.plain if a proxy does TLS", a.ListenAddr)
	case a.same(c.Server.ListenAddr), a.same(c.TLS.ListenAddr):
		return fmt.Errorf("admin.listen_addr %s is the address of another listener: choose a port of its own", a.ListenAddr)
	}
	return nil
}

// same tells whether the listener has the address of another one. Port 0 is never the same.
func (a *Admin) same(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && addr == a.ListenAddr && port != "0"
}
