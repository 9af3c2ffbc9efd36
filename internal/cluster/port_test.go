package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/certs"
)

// portOf opens and serves a port whose answers are the questions.
func portOf(t *testing.T, cfg PortConfig) *Port {
	t.Helper()
	cfg.Listen, cfg.Log = "127.0.0.1:0", zerolog.Nop()
	p, err := OpenPort(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.serve(func(from string, q question, body []byte) ([]byte, error) {
		if string(body) == "refuse" {
			return nil, errors.New("no such luck")
		}
		return append([]byte(from+string(rune(q))), body...), nil
	}, nil, nil)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func node(t *testing.T, id string) *Port {
	t.Helper()
	return portOf(t, PortConfig{Node: id, Cluster: "test"})
}

func TestAQuestionIsAnswered(t *testing.T) {
	a, b := node(t, "a"), node(t, "b")
	for _, body := range []string{"", "body", strings.Repeat("x", questionMax-2)} {
		got, err := b.ask(context.Background(), a.Addr().String(), askStatus, []byte(body))
		if err != nil || string(got) != "bS"+body {
			t.Errorf("%d bytes: %.80q, %v", len(body), got, err)
		}
	}
	if _, err := b.ask(context.Background(), a.Addr().String(), askStatus, []byte("refuse")); err == nil || err.Error() != "no such luck" {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := b.ask(context.Background(), a.Addr().String(), askStatus, make([]byte, questionMax+1)); err == nil {
		t.Error("a question that is too long is answered")
	}
}

func TestANodeThatDoesNotBelongHereIsRefused(t *testing.T) {
	for name, x := range map[string]struct {
		kind     byte
		here, he string // ids of clusters
		from     PortConfig
		want     string // "": accepted
	}{
		"a question of a new node":      {kindQuestion, "1", "", PortConfig{Node: "b", Cluster: "test"}, ""},
		"a question to a new node":      {kindQuestion, "", "1", PortConfig{Node: "b", Cluster: "test"}, ""},
		"Raft":                          {kindRaft, "1", "1", PortConfig{Node: "b", Cluster: "test"}, ""},
		"a link":                        {kindLink, "1", "1", PortConfig{Node: "b", Cluster: "test"}, ""},
		"Raft of a new node":            {kindRaft, "1", "", PortConfig{Node: "b", Cluster: "test"}, "b has not joined"},
		"Raft to a new node":            {kindRaft, "", "1", PortConfig{Node: "b", Cluster: "test"}, "a has not joined"},
		"another cluster":               {kindQuestion, "1", "1", PortConfig{Node: "b", Cluster: "other"}, "cluster.name"},
		"another cluster of that name":  {kindQuestion, "1", "2", PortConfig{Node: "b", Cluster: "test"}, "formed apart"},
		"the same name":                 {kindQuestion, "1", "1", PortConfig{Node: "a", Cluster: "test"}, "two nodes have the name a"},
		"what this node does not know":  {'X', "1", "1", PortConfig{Node: "b", Cluster: "test"}, "does not know"},
		"commands, where there are not": {kindLink, "1", "1", PortConfig{Node: "b", Cluster: "test", Link: nil}, "does not know"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := PortConfig{Node: "a", Cluster: "test", Link: func(c net.Conn, _ string) { _, _ = c.Write([]byte("link")) }}
			if strings.HasPrefix(name, "commands") {
				cfg.Link = nil
			}
			a := portOf(t, cfg)
			b := portOf(t, x.from)
			a.join(x.here)
			b.join(x.he)
			go func() {
				for c := range a.raft {
					_ = c.Close()
				}
			}()
			c, err := b.dial(context.Background(), x.kind, a.Addr().String())
			if err == nil {
				_ = c.Close()
			}
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("got %v, want %q", err, x.want)
			}
			if _, refused := errors.AsType[refusedError](err); err != nil && !refused {
				t.Errorf("%v is no refusal", err)
			}
		})
	}
}

// What speaks another protocol, or nothing, must not get in anybody's way.
func TestConnectionsThatGreetNobodyAreClosed(t *testing.T) {
	a, b := node(t, "a"), node(t, "b")
	for _, bytes := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n", "GET / HTTP/1.1\r\n\r\n", "Q\xff\xff", "Q\x00\x02{]", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
		c, err := new(net.Dialer).DialContext(context.Background(), "tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, bytes); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite() // it may be closed already
		if got, _ := io.ReadAll(c); strings.Contains(string(got), "OK") || len(got) > 0 && got[0] == 0 {
			t.Errorf("%q is answered %q", bytes, got)
		}
		_ = c.Close()
	}
	var silent []net.Conn
	for range greetingsMax - 1 { // one fewer than would make others wait
		c, err := new(net.Dialer).DialContext(context.Background(), "tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	if _, err := b.ask(context.Background(), a.Addr().String(), askStatus, nil); err != nil {
		t.Errorf("beside %d connections that say nothing: %v", len(silent), err)
	}
	for _, c := range silent {
		_ = c.Close()
	}
}

// authority issues certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	a.key, der = a.sign(template, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign issues a certificate; by is the authority's key, nil for a key of its own.
func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

// source returns a certificate that this authority has issued, trusting another one.
func (a *authority) source(host string, trusts *authority) *certs.Source {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	key, der := a.sign(template, a.cert, a.key)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		var text bytes.Buffer
		if err := errors.Join(pem.Encode(&text, &pem.Block{Type: kind, Bytes: der}), os.WriteFile(path, text.Bytes(), 0o600)); err != nil {
			a.t.Fatal(err)
		}
		return path
	}
	s, err := certs.New(certs.Files{
		Cert: file("cert", "CERTIFICATE", der), Key: file("key", "PRIVATE KEY", private), CA: file("ca", "CERTIFICATE", trusts.cert.Raw),
	}, tls.RequireAndVerifyClientCert, zerolog.Nop())
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

func TestBothSidesShowACertificateOfTheAuthority(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.source("127.0.0.1", ours)
	a := portOf(t, PortConfig{Node: "a", Cluster: "test", TLS: good})
	for name, x := range map[string]struct {
		source *certs.Source
		ok     bool
	}{
		"a certificate of the authority":              {ours.source("127.0.0.1", ours), true},
		"a certificate for another host, as a client": {ours.source("elsewhere", ours), true},
		"a certificate of another authority":          {theirs.source("127.0.0.1", ours), false},
		"trust in another authority":                  {ours.source("127.0.0.1", theirs), false},
		"another authority for both":                  {theirs.source("127.0.0.1", theirs), false},
		"no TLS":                                      {nil, false},
	} {
		b := portOf(t, PortConfig{Node: "b", Cluster: "test", TLS: x.source})
		_, err := b.ask(context.Background(), a.Addr().String(), askStatus, nil)
		if x.ok != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := portOf(t, PortConfig{Node: "b", Cluster: "test", TLS: good})
	c := portOf(t, PortConfig{Node: "c", Cluster: "test", TLS: ours.source("elsewhere", ours)})
	if _, err := b.ask(context.Background(), c.Addr().String(), askStatus, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a node whose certificate is for another host: %v", err)
	}
	plain := node(t, "d")
	if _, err := b.ask(context.Background(), plain.Addr().String(), askStatus, nil); err == nil {
		t.Error("a node with TLS talks to one without")
	}
}

// A node that accepts a connection and says nothing does not hold who dials, who closes the connection.
func TestASilentNodeIsGivenUp(t *testing.T) {
	ours := newAuthority(t)
	for name, cfg := range map[string]PortConfig{
		"plain": {Node: "a", Cluster: "test"}, "TLS": {Node: "a", Cluster: "test", TLS: ours.source("127.0.0.1", ours)},
	} {
		a := portOf(t, cfg)
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				cancel()
				_, err = io.Copy(io.Discard, c)
			}
			ended <- err
		}()
		if _, err := a.Dial(ctx, l.Addr().String()); err == nil {
			t.Errorf("%s: a node that says nothing is connected", name)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = l.Close()
	}
}

func TestANodeIsFoundByItsName(t *testing.T) {
	ours := newAuthority(t)
	a := portOf(t, PortConfig{Node: "a", Cluster: "test", TLS: ours.source("localhost", ours)})
	b := portOf(t, PortConfig{Node: "b", Cluster: "test", TLS: ours.source("localhost", ours)})
	_, port, err := net.SplitHostPort(a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ask(context.Background(), net.JoinHostPort("localhost", port), askStatus, nil); err != nil {
		t.Error(err)
	}
	if _, err := b.ask(context.Background(), net.JoinHostPort("127.0.0.1", port), askStatus, nil); err == nil {
		t.Error("a certificate for a name is good for an address")
	}
}
