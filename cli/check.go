package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/faisca/fila/cli/remote"
)

// check is what no setting can see alone.
func (c *Config) check() error {
	if c.Limits.Command < c.Limits.Payload+kib {
		return fmt.Errorf("limits.command_bytes must be at least limits.payload_bytes and 1024, that is %d, not %d",
			c.Limits.Payload+kib, c.Limits.Command)
	}
	if n := c.Storage.BlockCacheBytes; n != 0 && n < blockCacheMin {
		return fmt.Errorf("storage.block_cache_bytes must be 0 or at least %d, not %d", blockCacheMin, n)
	}
	if c.Scheduler.MaxBackoff < c.Scheduler.Backoff {
		return fmt.Errorf("scheduler.max_backoff_ms must be at least scheduler.backoff_ms, that is %d, not %d",
			c.Scheduler.Backoff.Milliseconds(), c.Scheduler.MaxBackoff.Milliseconds())
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if err := c.checkAdmin(); err != nil {
		return err
	}
	if err := c.checkCluster(); err != nil {
		return err
	}
	if len(c.Auth.Users) > 0 && c.Auth.ACLFile != "" {
		return errors.New("auth.users and auth.acl_file exclude each other: put the users into the file")
	}
	if c.Auth.Password == "" && len(c.Auth.Users) == 0 && c.Auth.ACLFile == "" {
		return c.CheckOpen()
	}
	return nil
}

// CheckOpen refuses an address that other machines can reach. It is called for a broker
// whose clients need not authenticate.
func (c *Config) CheckOpen() error {
	type listener struct {
		name, addr string
		certified  bool // each client has shown a certificate
	}
	certified := c.TLS.AuthClients == ClientsMust
	listeners := []listener{
		{"server.listen_addr", c.Server.ListenAddr, false},
		{"tls.listen_addr", c.TLS.ListenAddr, certified},
		{"admin.listen_addr", c.Admin.ListenAddr, certified && c.Admin.TLS},
	}
	for _, p := range c.Cluster.Ports() {
		listeners = append(listeners, listener{p.Setting, p.Addr, certified && p.TLS})
	}
	for _, l := range listeners {
		if l.addr != "" && !loopback(l.addr) && !l.certified {
			return UsageError{Err: fmt.Errorf("%s %s can be reached from other machines, and clients need not authenticate: "+
				"set auth.password (FILA_AUTH__PASSWORD), switch the user default off, or listen on 127.0.0.1", l.name, l.addr)}
		}
	}
	return nil
}

// checkTLS is about the settings of TLS that need each other.
func (c *Config) checkTLS() error {
	t := &c.TLS
	user := "" // a setting that needs TLS
	for _, p := range c.Cluster.Ports() {
		if p.TLS {
			user = p.Setting
		}
	}
	if t.ListenAddr != "" {
		user = "tls.listen_addr"
	}
	switch {
	case t.ListenAddr == "" && c.Server.ListenAddr == "":
		return errors.New("server.listen_addr and tls.listen_addr are both empty: no client could connect")
	case user == "":
		return nil
	case t.CertFile == "" || t.KeyFile == "":
		return errors.New(user + " needs tls.cert_file and tls.key_file")
	case t.CAFile == "" && t.AuthClients != ClientsNeedNot:
		return fmt.Errorf("tls.auth_clients is %s: set tls.ca_file, or tls.auth_clients to no", t.AuthClients)
	}
	return nil
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func checkOptionalAddr(s string) error {
	if s == "" {
		return nil
	}
	return remote.CheckAddr(s)
}

func checkPprofAddr(s string) error {
	if s == "" {
		return nil
	}
	if err := remote.CheckAddr(s); err != nil {
		return err
	}
	if !loopback(s) {
		return fmt.Errorf("must be an address that only this machine can reach, as in 127.0.0.1:6060, not %q", s)
	}
	return nil
}

// loopback tells whether only this machine can reach the address. A host name
// other than localhost is not looked up: what it resolves to can change after
// the check, and a wrong yes opens the broker to all machines.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
