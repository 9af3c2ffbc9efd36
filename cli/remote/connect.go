package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faisca/fila/internal/client"
)

// Variables that say where a broker is. FILA_URL is none of the broker's settings, see
// notASetting.
const (
	urlVariable      = "FILA_URL"
	passwordVariable = "FILA_AUTH__PASSWORD" //nolint:gosec // a variable's name
)

const (
	defaultAddr = "127.0.0.1:5555"
	defaultPort = "5555"
	defaultUser = "default"
)

// Connection is where a command finds the broker and as which user it goes there. The
// parts are taken in this order: flags, then the URL of --url or FILA_URL, then defaults. There
// is no flag for the password: other users of the machine can read a command's arguments.
type Connection struct {
	url, addr, user       string
	tls                   bool
	caFile, cert, keyFile string

	env   *Env
	given func(flag string) bool
}

// Connecting gives a command the flags of a connection.
func Connecting(cmd *cobra.Command, env *Env) *Connection {
	c := &Connection{env: env}
	fs := cmd.Flags()
	c.given = fs.Changed
	fs.StringVarP(&c.url, "url", "u", "", "the broker's `URL`, fila://user:password@host:port, or filas:// with TLS; else FILA_URL")
	fs.StringVar(&c.addr, "addr", defaultAddr, "the broker's `host:port`")
	fs.StringVar(&c.user, "user", defaultUser, "the `name` to authenticate as")
	fs.BoolVar(&c.tls, "tls", false, "connect with TLS")
	fs.StringVar(&c.caFile, "cacert", "", "`file` with the certificates that the broker's is checked against; else the system's")
	fs.StringVar(&c.cert, "cert", "", "`file` with a certificate to show to the broker")
	fs.StringVar(&c.keyFile, "tls-key", "", "`file` with that certificate's private key")
	return c
}

// NamedKey lets --key stand for --tls-key, as it does in the commands that have no fairness key
// of that name.
func (c *Connection) NamedKey(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "key" {
			name = "tls-key"
		}
		return pflag.NormalizedName(name)
	})
}

// target is what flags and URL come to.
type target struct {
	addr, user, password string
	named                bool        // a user was named: authenticate also without a password
	tls                  *tls.Config // nil: without TLS
}

// target resolves the flags, the URL and the environment. Its error is a UsageError, and
// never has a password in it.
func (c *Connection) target() (target, error) {
	t := target{addr: defaultAddr, user: defaultUser}
	secure := c.tls
	where, text := "--url", c.url
	if !c.given("url") {
		where, text = urlVariable, variable(c.env.Environ, urlVariable)
	}
	if c.given("url") && c.given("addr") {
		return t, UsageError{errors.New("--url and --addr both say where the broker is: give one of them")}
	}
	if text != "" {
		overTLS, err := t.parse(text)
		if err != nil {
			return t, UsageError{fmt.Errorf("%s must be like fila://user:password@host:port: %w", where, err)}
		}
		if !c.given("tls") {
			secure = overTLS
		}
	}
	if c.given("addr") {
		t.addr = c.addr
	}
	if c.given("user") {
		t.named = true
		t.user = c.user
	}
	if err := CheckAddr(t.addr); err != nil {
		return t, UsageError{fmt.Errorf("the broker's address %w", err)}
	}
	t.password = cmp.Or(t.password, variable(c.env.Environ, passwordVariable))
	var err error
	if t.tls, err = c.security(secure, t.addr); err != nil {
		return t, UsageError{err}
	}
	return t, nil
}

// Addr is where the broker is.
func (c *Connection) Addr() (string, error) {
	t, err := c.target()
	return t.addr, err
}

// parse takes address, user and password from a URL, and says whether it asks for TLS.
func (t *target) parse(text string) (secure bool, err error) {
	u, err := url.Parse(text)
	if err != nil { // its text has the URL in it, and so the password
		return false, errors.New("it is not a URL; write special characters of a password as %XX")
	}
	switch u.Scheme {
	case "fila", "redis":
	case "filas", "rediss":
		secure = true
	default:
		return false, fmt.Errorf("the scheme must be fila, filas, redis or rediss, not %q", u.Scheme)
	}
	if path := strings.Trim(u.Path, "/"); path != "" && path != "0" || u.RawQuery != "" || u.Fragment != "" {
		return false, errors.New("nothing may follow the port: Fila has no databases and takes no parameters")
	}
	if u.Hostname() == "" {
		return false, errors.New("there is no host in it")
	}
	t.addr = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPort))
	if u.User != nil {
		t.named = u.User.Username() != ""
		t.user = cmp.Or(u.User.Username(), defaultUser)
		t.password, _ = u.User.Password()
	}
	return secure, nil
}

// security is the configuration of TLS, nil where it is not used.
func (c *Connection) security(secure bool, addr string) (*tls.Config, error) {
	for _, name := range []string{"cacert", "cert", "tls-key"} {
		if c.given(name) && !secure {
			return nil, fmt.Errorf("--%s is for TLS: give --tls as well, or a URL that starts with filas://", name)
		}
	}
	if !secure {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if c.caFile != "" {
		text, err := os.ReadFile(c.caFile)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert: there is no certificate in %s", c.caFile)
		}
	}
	if (c.cert == "") != (c.keyFile == "") {
		return nil, errors.New("--cert and --tls-key need each other")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// Dial connects and authenticates, where there is something to authenticate with. Where the
// user needs a password that is not there, it asks for one on a terminal.
func (c *Connection) Dial(ctx context.Context) (*client.Conn, error) {
	conn, _, err := c.dial(ctx)
	return conn, err
}

// dial is Dial, and returns what more connections are made from.
func (c *Connection) dial(ctx context.Context) (*client.Conn, target, error) {
	t, err := c.target()
	if err != nil {
		return nil, t, err
	}
	conn, err := t.dial(ctx)
	if t.password == "" && client.Refused(err, "WRONGPASS") {
		if c.env.Password == nil {
			return nil, t, fmt.Errorf("the user %s needs a password: set %s, or put it into %s", t.user, passwordVariable, urlVariable)
		}
		if t.password, err = c.env.Password("password of " + t.user + ": "); err != nil {
			return nil, t, err
		}
		conn, err = t.dial(ctx)
	}
	return conn, t, err
}

func (t *target) dial(ctx context.Context) (*client.Conn, error) {
	o := client.Options{TLS: t.tls, Password: t.password}
	if t.named {
		o.User = t.user
	}
	conn, err := client.Dial(ctx, t.addr, o)
	if err != nil && !client.Refused(err) {
		err = fmt.Errorf("no broker at %s: %w", t.addr, err)
	}
	return conn, err
}

// variable is the value of an environment variable, "" if it is not there.
func variable(environ []string, name string) string {
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// CheckAddr refuses what is not host:port.
func CheckAddr(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("must be host:port as in 127.0.0.1:5555, not %q", s)
	}
	// Service names ("redis") are refused: what they mean differs by machine.
	if _, err := netip.ParseAddrPort("127.0.0.1:" + port); err != nil {
		return fmt.Errorf("must end in a port from 0 to 65535, not %q", port)
	}
	return nil
}
