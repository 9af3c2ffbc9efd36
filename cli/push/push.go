// Package push delivers messages by HTTP: the task of `fila push`.
//
// # A request
//
// Each message is a POST with the payload as its body. Headers say what it is; with secrets it is signed as Standard
// Webhooks (https://www.standardwebhooks.com) describes, so receivers in most languages have a library that verifies it.
//
//	2xx                      done
//	410                      dead
//	429, 503 + Retry-After   failed; the throttle is held for that time, or the message alone is delayed by it
//	anything else            failed
//
// Redirects are not followed: where messages go is decided by who runs the program.
//
// # Addresses
//
// A host name may lead to any address, and to another one at each attempt, so the address is checked after it has been
// resolved, when it is connected to. What is not public is refused unless it is asked for; the message is given back.
package push

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/faisca/fila/cli/worker"
)

// Options say where messages are sent, and how.
type Options struct {
	URL     string        // http or https
	Timeout time.Duration // of a request, with its answer
	// SecretFile has a secret in each line, as whsec_ and 24 to 64 bytes in base64. A request has a signature of each, so a
	// new one is put into the file before the receiver knows it, and an old one is taken out afterwards. The file is read
	// again when it has changed. Empty: requests are not signed.
	SecretFile string
	CAFile     string // certificates in PEM that are trusted in place of the system's; empty: the system's
	Private    bool   // addresses that are not public are connected to
	// Hold is the throttle that is held when the receiver says when to come again; {key} in it is the key of the message.
	// Empty: that message alone is delayed.
	Hold string
}

// Task sends a request for each message.
type Task struct {
	Options

	client http.Client

	mu      sync.Mutex
	secrets [][]byte
	read    time.Time // the time of the file when it was read
}

const (
	// retryAfterMost bounds what a receiver may ask for.
	retryAfterMost = 24 * time.Hour
	// failureMax bounds the part of an answer that becomes the text of a failure, in bytes.
	failureMax = 1000
	// drainMost is how much of an answer is read so that its connection can be used again.
	drainMost = 64 << 10
)

// New returns a task, or an error that says which option is wrong.
func New(o Options, connections int) (*Task, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("URL must be an address as https://example.com/hook, not %q", o.URL)
	}
	if u.User != nil {
		return nil, errors.New("URL must not have a password, which other users of this machine would see: sign requests with --secret-file")
	}
	t := &Task{Options: o}
	if o.SecretFile != "" {
		if _, err := t.keys(); err != nil {
			return nil, err
		}
	}
	dialer := &net.Dialer{Timeout: o.Timeout}
	if !o.Private {
		dialer.Control = public
	}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: o.Timeout, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: connections, IdleConnTimeout: 90 * time.Second,
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file: %s has no certificate in PEM", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	t.client = http.Client{
		Transport: transport, Timeout: o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return t, nil
}

// Do sends the request of a message. It implements [worker.Task].
func (t *Task) Do(ctx context.Context, m *worker.Message) worker.Result {
	req, err := t.request(ctx, m, time.Now())
	if err != nil {
		return worker.Result{NotStarted: err}
	}
	resp, err := t.client.Do(req)
	if errors.Is(err, errNotPublic) { // it is no failure of the message
		return worker.Result{NotStarted: reason(err)}
	}
	if err != nil {
		return worker.Result{Failure: reason(err).Error()}
	}
	defer resp.Body.Close()
	start, _ := io.ReadAll(io.LimitReader(resp.Body, failureMax)) // what has not arrived is not a part of the reason
	_, _ = io.CopyN(io.Discard, resp.Body, drainMost)
	if resp.StatusCode/100 == 2 {
		return worker.Result{}
	}
	r := worker.Result{Failure: resp.Status, Dead: resp.StatusCode == http.StatusGone}
	if line, _, _ := bytes.Cut(bytes.TrimSpace(start), []byte("\n")); len(line) > 0 {
		r.Failure += ": " + strings.ToValidUTF8(string(bytes.TrimSpace(line)), "\uFFFD")
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if r.Delay = retryAfter(resp.Header.Get("Retry-After"), time.Now()); r.Delay > 0 {
			r.Hold = strings.ReplaceAll(t.Hold, "{key}", m.Key)
		}
	}
	return r
}

// reason is why a request has no answer, without the URL, which is the same for all.
func reason(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() {
			return errors.New("no answer in time")
		}
		return u.Err
	}
	return err
}

// request is the request of a message.
func (t *Task) request(ctx context.Context, m *worker.Message, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, strings.NewReader(m.Payload))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("User-Agent", "fila-push")
	h.Set("Content-Type", "application/octet-stream")
	for i := 0; i+1 < len(m.Headers); i += 2 {
		name, value := m.Headers[i], m.Headers[i+1]
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			continue
		}
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Content-Type", "Traceparent", "Tracestate":
			h.Set(name, value)
		default:
			h.Set("Fila-Header-"+name, value)
		}
	}
	h.Set("Fila-Queue", url.PathEscape(m.Queue))
	h.Set("Fila-Key", url.PathEscape(m.Key))
	h.Set("Fila-Attempt", strconv.FormatInt(m.Attempt, 10))
	h.Set("Fila-Deliveries", strconv.FormatInt(m.Deliveries, 10))
	h.Set("Fila-Enqueued-At", strconv.FormatInt(m.EnqueuedAt, 10))
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set("Webhook-Id", m.ID)
	h.Set("Webhook-Timestamp", at)
	if t.SecretFile == "" {
		return req, nil
	}
	secrets, err := t.keys()
	if err != nil {
		return nil, err
	}
	var signatures []string
	for _, s := range secrets {
		signatures = append(signatures, sign(s, m.ID, at, m.Payload))
	}
	h.Set("Webhook-Signature", strings.Join(signatures, " "))
	return req, nil
}

// sign is the signature of Standard Webhooks, version 1: HMAC with SHA-256 over id, time and body.
func sign(secret []byte, id, at, body string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + at + "." + body)) // it never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// keys are the secrets of the file. It is read again when its time has changed; while it cannot be read or has a
// mistake, nothing is sent.
func (t *Task) keys() ([][]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	if t.secrets != nil && info.ModTime().Equal(t.read) {
		return t.secrets, nil
	}
	text, err := os.ReadFile(t.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	secrets, err := parseSecrets(string(text))
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %s: %w", t.SecretFile, err)
	}
	t.secrets, t.read = secrets, info.ModTime()
	return secrets, nil
}

// parseSecrets reads a secret from each line; lines that are empty or begin with # are none. Errors do not show them.
func parseSecrets(text string) ([][]byte, error) {
	const prefix, least, most = "whsec_", 24, 64
	var secrets [][]byte
	no := 0
	for line := range strings.Lines(text) {
		no++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		coded, ok := strings.CutPrefix(line, prefix)
		s, err := base64.StdEncoding.DecodeString(coded)
		if !ok || err != nil || len(s) < least || len(s) > most {
			return nil, fmt.Errorf("line %d must be %s followed by %d to %d bytes in base64", no, prefix, least, most)
		}
		secrets = append(secrets, s)
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("it must have a secret: echo %s$(openssl rand -base64 32)", prefix)
	}
	return secrets, nil
}

// retryAfter is how long a receiver wants to be left alone: seconds, or the time of a date. 0: it does not say.
func retryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), retryAfterMost)
}

var errNotPublic = errors.New("not a public address: --private allows it")

// public refuses connections to what is not a public address. It implements the Control of a [net.Dialer], which gets
// addresses that are resolved.
func public(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !isPublic(at.Addr()) {
		return fmt.Errorf("%s is %w", at.Addr(), errNotPublic)
	}
	return nil
}

// isPublic reports whether an address is reachable from everywhere, by the registries of special addresses (RFC 6890).
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, p := range special() {
		if netip.MustParsePrefix(p).Contains(a) {
			return false
		}
	}
	return true
}

// special are networks that are not public, beside those that package netip knows. 64:ff9b::/96 and 2002::/16 lead to
// IPv4 addresses, which may be private.
func special() []string {
	return []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	}
}
