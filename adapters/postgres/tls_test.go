package outbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate writes a certificate for 127.0.0.1, and for no name, that is its own authority.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTheCertificateOfEachNodeIsVerifiedByItsOwnAddress has two addresses of a broker whose certificate is valid for the
// second only.
func TestTheCertificateOfEachNodeIsVerifiedByItsOwnAddress(t *testing.T) {
	port, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	b := &brokerProcess{dir: t.TempDir(), storage: "memory", args: []string{
		"--tls.listen_addr", fmt.Sprint("127.0.0.1:", port), "--tls.cert_file", cert, "--tls.key_file", key, "--tls.auth_clients", "no",
	}}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	client, url := b.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	enqueue(t, db, q, "x", "k")

	unknown := &log{}
	relaying(t, Config{Broker: fmt.Sprintf("rediss://127.0.0.1:%d", port), Database: url, Log: unknown.add}, nil)
	until(t, "an unknown authority is refused", func() bool { return unknown.has("x509: certificate signed by unknown authority") })
	wrong := &log{}
	relaying(t, Config{Broker: fmt.Sprintf("rediss://localhost:%d", port), Database: url, Log: wrong.add}, nil)
	until(t, "another name is refused", func() bool { return wrong.has("x509: ") })
	if n := number(t, db, waitingRows); n != 1 {
		t.Fatalf("%d rows wait", n)
	}

	relay := relayProcess(t, fmt.Sprintf("rediss://localhost:%d?addr=127.0.0.1:%d", port, port), url, "", "SSL_CERT_FILE="+cert)
	t.Cleanup(func() {
		_ = relay.Process.Kill()
		_ = relay.Wait()
	})
	until(t, "the row is moved", func() bool { return number(t, db, waitingRows) == 0 })
	if n := depth(t, client, q); n != 1 {
		t.Errorf("%d messages", n)
	}
}
