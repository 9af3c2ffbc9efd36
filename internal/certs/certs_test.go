package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// put writes a self-signed certificate with that serial number, and its key.
func put(t *testing.T, f Files, serial int64, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: until}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.Cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	write(t, f.Key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// serial returns the serial number of the certificate presented to the next client.
func serial(t *testing.T, c *tls.Config) int64 {
	t.Helper()
	next, err := c.GetConfigForClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	return next.Certificates[0].Leaf.SerialNumber.Int64()
}

func TestNewFilesCountForTheNextClient(t *testing.T) {
	f := files(t)
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Hour)
		put(t, f, 1, until)
		var log bytes.Buffer
		s, err := New(f, tls.NoClientCert, zerolog.New(&log))
		if err != nil {
			t.Fatal(err)
		}
		c := s.Config()
		put(t, f, 2, until)
		if got := serial(t, c); got != 1 {
			t.Errorf("looked at the files within %s of the last time", lookEvery)
		}
		time.Sleep(lookEvery)
		if got := serial(t, c); got != 2 {
			t.Errorf("certificate %d", got)
		}
		before, _ := c.GetConfigForClient(nil)
		time.Sleep(lookEvery)
		if after, _ := c.GetConfigForClient(nil); after != before {
			t.Error("read again without a change")
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}

func TestFilesThatCannotBeUsedChangeNothing(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f Files){
		"nonsense": func(t *testing.T, f Files) { t.Helper(); write(t, f.Cert, "nonsense") },
		"another's key": func(t *testing.T, f Files) {
			t.Helper()
			o := files(t)
			put(t, Files{o.Cert, f.Key, ""}, 3, time.Now().Add(time.Hour))
		},
		"expired": func(t *testing.T, f Files) { t.Helper(); put(t, f, 3, time.Now().Add(-time.Hour)) },
		"missing": func(t *testing.T, f Files) {
			t.Helper()
			if err := os.Remove(f.Cert); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := files(t)
			put(t, f, 1, time.Now().Add(100*time.Hour))
			var log bytes.Buffer
			s, err := New(f, tls.NoClientCert, zerolog.New(&log))
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, f)
			for range 3 {
				s.looked = time.Time{} // as if a second had passed
				if got := serial(t, s.Config()); got != 1 {
					t.Errorf("certificate %d", got)
				}
			}
			if n := strings.Count(log.String(), "the previous ones stay in effect"); n != 1 {
				t.Errorf("told %d times:\n%s", n, log.String())
			}
			put(t, f, 4, time.Now().Add(100*time.Hour))
			s.looked = time.Time{}
			if got := serial(t, s.Config()); got != 4 {
				t.Errorf("certificate %d after the files are good again", got)
			}
		})
	}
}

func TestNewSaysWhichFileIsWrong(t *testing.T) {
	good, expired := files(t), files(t)
	put(t, good, 1, time.Now().Add(time.Hour))
	put(t, expired, 1, time.Now().Add(-time.Hour))
	empty := filepath.Join(t.TempDir(), "empty.pem")
	write(t, empty, "")
	for _, x := range []struct {
		files Files
		auth  tls.ClientAuthType
		want  string
	}{
		{Files{Cert: "nosuch.pem", Key: good.Key}, tls.NoClientCert, "nosuch.pem"},
		{Files{Cert: good.Cert, Key: empty}, tls.NoClientCert, "empty.pem"},
		{expired, tls.NoClientCert, " expired on "},
		{Files{Cert: good.Cert, Key: good.Key, CA: empty}, tls.NoClientCert, "contains no PEM certificate"},
		{good, tls.RequireAndVerifyClientCert, "no CA file"},
	} {
		if _, err := New(x.files, x.auth, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x.files, err)
		}
	}
}
