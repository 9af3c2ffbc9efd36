// Package certs builds TLS configurations from files and follows changes of the files, so
// certificates are renewed without a restart.
//
// The files are checked when a client connects, at most once a second, so there is no
// background task. Unusable files leave the previous configuration in effect and are
// logged once for each state of the files.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// lookEvery is the minimum time between two checks of the files.
const lookEvery = time.Second

// Files are the paths of certificates in PEM.
type Files struct {
	Cert string // of the server, followed by intermediate certificates
	Key  string // private key of Cert
	CA   string // authorities of accepted client certificates; empty: none
}

// Source holds the newest valid configuration.
type Source struct {
	files Files
	auth  tls.ClientAuthType
	log   zerolog.Logger

	mu      sync.Mutex
	looked  time.Time
	state   []os.FileInfo // of the files as last read, used or not
	missing bool          // a file was missing at the last check
	now     *tls.Config
}

// New reads the files. auth is the policy for client certificates, which needs Files.CA.
// An error names the file.
func New(files Files, auth tls.ClientAuthType, log zerolog.Logger) (*Source, error) {
	s := &Source{files: files, auth: auth, log: log}
	state, err := s.look()
	if err != nil {
		return nil, err
	}
	if s.now, err = s.read(); err != nil {
		return nil, err
	}
	s.state, s.looked = state, time.Now()
	return s, nil
}

// Config returns a configuration that follows the files.
func (s *Source) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
}

// Dial returns a configuration to connect with: the other side must show a certificate of Files.CA,
// valid for the host that is dialled, and is shown Files.Cert. It holds for one connection, so
// that the next one follows the files.
func (s *Source) Dial() *tls.Config {
	now := s.current()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: now.Certificates, RootCAs: now.ClientCAs, SessionTicketsDisabled: true,
	}
}

// current returns the configuration in effect, after a check of the files if it is due.
func (s *Source) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.looked) >= lookEvery {
		s.looked = now
		s.refresh()
	}
	return s.now
}

func (s *Source) refresh() {
	state, err := s.look()
	if err == nil && same(state, s.state) {
		return
	}
	var next *tls.Config
	if err == nil {
		next, err = s.read()
	}
	if err != nil {
		if state != nil || !s.missing { // otherwise it was logged already
			s.log.Error().Err(err).Msg("new TLS certificates are unusable; the previous ones stay in effect")
		}
		s.state, s.missing = state, state == nil
		return
	}
	s.now, s.state, s.missing = next, state, false
	s.log.Info().Str("file", s.files.Cert).Time("expires", next.Certificates[0].Leaf.NotAfter).Msg("TLS certificates reloaded")
}

// look returns a fingerprint of the files' state.
func (s *Source) look() ([]os.FileInfo, error) {
	var state []os.FileInfo
	for _, path := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		state = append(state, info)
	}
	return state, nil
}

func same(a, b []os.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

// read builds a configuration from the files. Session tickets are off: connections are
// long, and each presents its certificate.
func (s *Source) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.files.Cert, s.files.Key, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("certificate %s: %w", s.files.Cert, err)
		}
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("certificate %s expired on %s", s.files.Cert, pair.Leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: s.auth, SessionTicketsDisabled: true,
	}
	if s.files.CA == "" {
		if s.auth != tls.NoClientCert {
			return nil, errors.New("client certificates are requested, but no CA file is set")
		}
		return c, nil
	}
	pem, err := os.ReadFile(s.files.CA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no PEM certificate", s.files.CA)
	}
	return c, nil
}
