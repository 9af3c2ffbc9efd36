package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestTheAdminListenerIsOffByDefault(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	if a := l.Config.Admin; a.ListenAddr != "" || a.TLS || a.Plain || len(a.Hosts) > 0 || a.Prefix != "/" {
		t.Errorf("by default it is %+v", a)
	}
}

func TestAnAdminListenerThatWouldBeOpenIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	const away, here = "10.0.0.1:5557", "127.0.0.1:5557"
	certificates := map[string]string{"tls.cert_file": "c.pem", "tls.key_file": "k.pem", "tls.ca_file": "ca.pem"}
	for name, x := range map[string]struct {
		flags map[string]string
		tls   bool
		want  string // of the error; empty: it starts
	}{
		"loopback":                         {map[string]string{"admin.listen_addr": here}, false, ""},
		"every address without a password": {map[string]string{"admin.listen_addr": away, "admin.plain": "true"}, false, "admin.listen_addr"},
		"without TLS":                      {map[string]string{"admin.listen_addr": away, "auth.password": "p"}, false, "admin.plain"},
		"a name without TLS":               {map[string]string{"admin.listen_addr": "localhost.example:1", "auth.password": "p"}, false, "admin.plain"},
		"behind a proxy":                   {map[string]string{"admin.listen_addr": away, "auth.password": "p", "admin.plain": "true"}, false, ""},
		"with TLS and a password":          {map[string]string{"admin.listen_addr": away, "auth.password": "p", "admin.tls": "true"}, true, ""},
		"with certificates of clients":     {map[string]string{"admin.listen_addr": away, "admin.tls": "true"}, true, ""},
		"with TLS, open":                   {map[string]string{"admin.listen_addr": away, "admin.tls": "true", "tls.auth_clients": "optional"}, true, "auth.password"},
		"certificates, but not there":      {map[string]string{"admin.listen_addr": away, "admin.plain": "true"}, true, "auth.password"},
		"TLS without files":                {map[string]string{"admin.listen_addr": here, "admin.tls": "true"}, false, "tls.cert_file"},
		"the port of clients":              {map[string]string{"admin.listen_addr": here, "server.listen_addr": here}, false, "another listener"},
		"two free ports":                   {map[string]string{"admin.listen_addr": "127.0.0.1:0", "server.listen_addr": "127.0.0.1:0"}, false, ""},
		"a prefix without an end":          {map[string]string{"admin.prefix": "/fila"}, false, "admin.prefix"},
		"a prefix without a beginning":     {map[string]string{"admin.prefix": "fila/"}, false, "admin.prefix"},
		"hosts with commas":                {map[string]string{"admin.hosts": "a.example,b.example"}, false, "admin.hosts"},
		"a host with a port":               {map[string]string{"admin.hosts": "fila.example:5557"}, false, "admin.hosts"},
		"neither true nor false":           {map[string]string{"admin.plain": "yes"}, false, "true or false"},
	} {
		in := Input{Flags: x.flags}
		if x.tls {
			maps.Copy(in.Flags, certificates)
		}
		_, err := Load(in)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

func TestSettingsThatAreTrueOrFalseAndListsThatAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "fila.toml", "[admin]\nplain = true\nhosts = ['a.example', 'b.example']\n")
	l, err := Load(Input{Environ: []string{"FILA_ADMIN__TLS=false"}})
	if err != nil {
		t.Fatal(err)
	}
	if a := l.Config.Admin; !a.Plain || a.TLS || !slices.Equal(a.Hosts, []string{"a.example", "b.example"}) {
		t.Errorf("read %+v", a)
	}
	for _, bad := range []string{"plain = 'true'", "plain = 1", "hosts = ['']", "hosts = ['http://x']", "hosts = 'x'", "hosts = ['x', 1]"} {
		write(t, "fila.toml", "[admin]\n"+bad+"\n")
		if _, err := Load(Input{}); err == nil || !strings.Contains(err.Error(), "admin.") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
