package integration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates for one test.
type authority struct {
	dir  string // directory of the certificate files
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.make(t, "ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	})
	return a
}

// file returns the path of a certificate, or of its key for a name ending in "-key".
func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// issue creates a certificate for localhost and the named user.
func (a *authority) issue(t *testing.T, name, user string, from, until time.Time) {
	t.Helper()
	a.make(t, name, &x509.Certificate{
		Subject: pkix.Name{CommonName: user}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) make(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		a.file(name): {Type: "CERTIFICATE", Bytes: der}, a.file(name + "-key"): {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// client returns the TLS configuration of a client that trusts the authority and presents the named
// certificate, or none if the name is empty.
func (a *authority) client(t *testing.T, name string) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.file(name), a.file(name+"-key"))
		if err != nil {
			t.Fatal(err)
		}
		// Sent regardless of what the server claims to accept: the server must refuse it.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}
