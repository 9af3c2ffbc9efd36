package push

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/cli/worker"
)

// receiver is a server that answers with a function, and a task that sends to it.
func receiver(t *testing.T, o Options, answer http.HandlerFunc) *Task {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	o.URL, o.Private = s.URL+"/hook", true
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	task, err := New(o, 1)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func TestAnAnswerDecidesWhatBecomesOfTheMessage(t *testing.T) {
	for _, x := range []struct {
		status      int
		after, body string
		want        worker.Result
	}{
		{status: 200},
		{status: 204},
		{status: 299, body: "ok"},
		{status: 301, want: worker.Result{Failure: "301 Moved Permanently"}},
		{status: 400, body: " no such customer\nat line 3", want: worker.Result{Failure: "400 Bad Request: no such customer"}},
		{status: 410, after: "30", want: worker.Result{Failure: "410 Gone", Dead: true}},
		{status: 429, want: worker.Result{Failure: "429 Too Many Requests"}},
		{status: 429, after: "30", want: worker.Result{Failure: "429 Too Many Requests", Delay: 30 * time.Second, Hold: "provider:acme"}},
		{status: 503, after: "1", body: "\xff", want: worker.Result{Failure: "503 Service Unavailable: \uFFFD", Delay: time.Second, Hold: "provider:acme"}},
		{status: 503, after: "soon", want: worker.Result{Failure: "503 Service Unavailable"}},
		{status: 500, after: "30", want: worker.Result{Failure: "500 Internal Server Error"}},
	} {
		task := receiver(t, Options{Hold: "provider:{key}"}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hook" {
				t.Errorf("it goes to %s", r.URL)
			}
			w.Header().Set("Location", "/elsewhere")
			if x.after != "" {
				w.Header().Set("Retry-After", x.after)
			}
			w.WriteHeader(x.status)
			if x.body != "" {
				_, _ = w.Write([]byte(x.body))
			}
		})
		if got := task.Do(t.Context(), &worker.Message{ID: "i", Key: "acme", Payload: "p"}); got != x.want {
			t.Errorf("%d, Retry-After %q: %+v, want %+v", x.status, x.after, got, x.want)
		}
	}
}

func TestARequestSaysWhatTheMessageIs(t *testing.T) {
	var got *http.Request
	var body string
	task := receiver(t, Options{}, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		b, err := io.ReadAll(r.Body)
		if body = string(b); err != nil {
			t.Error(err)
		}
	})
	m := &worker.Message{
		Queue: "q", ID: "0123", Payload: "{\"a\":1}", Key: "Zoë/1\n", Attempt: 2, Deliveries: 3, EnqueuedAt: 1_700_000_000_123,
		Headers: []string{"content-type", "application/json", "traceparent", "00-a-b-01", "order", "17", "no name", "x", "bad", "a\nb", "fila-key", "forged"},
	}
	if r := task.Do(t.Context(), m); r != (worker.Result{}) {
		t.Fatalf("%+v", r)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Traceparent": "00-a-b-01", "Fila-Header-Order": "17", "Fila-Header-Fila-Key": "forged", "Fila-Header-Bad": "",
		"Fila-Queue": "q", "Fila-Key": "Zo%C3%AB%2F1%0A", "Fila-Attempt": "2", "Fila-Deliveries": "3", "Fila-Enqueued-At": "1700000000123",
		"Webhook-Id": "0123", "Webhook-Signature": "", "User-Agent": "fila-push",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	if got.Method != http.MethodPost || body != m.Payload {
		t.Errorf("%s %q", got.Method, body)
	}
}

// The example of the specification of Standard Webhooks.
func TestASignatureIsThatOfStandardWebhooks(t *testing.T) {
	secrets, err := parseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := sign(secrets[0], "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func secret(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 24)))
}

func TestSecretsAreRotatedWithoutARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets")
	write := func(text string, at time.Time) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	var h http.Header
	begin := time.Now()
	write("# of today\n"+secret('a')+"\n", begin)
	task := receiver(t, Options{SecretFile: file}, func(_ http.ResponseWriter, r *http.Request) { h = r.Header })
	verify := func(keys ...byte) {
		t.Helper()
		if r := task.Do(t.Context(), &worker.Message{ID: "i", Payload: "p"}); r != (worker.Result{}) {
			t.Fatalf("%+v", r)
		}
		var want []string
		for _, k := range keys {
			want = append(want, sign([]byte(strings.Repeat(string(k), 24)), "i", h.Get("Webhook-Timestamp"), "p"))
		}
		if got := h.Get("Webhook-Signature"); got != strings.Join(want, " ") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	verify('a')
	write(secret('b')+"\n"+secret('a')+"\n", begin.Add(time.Second))
	verify('b', 'a')
	write("none\n", begin.Add(2*time.Second))
	if r := task.Do(t.Context(), &worker.Message{}); r.NotStarted == nil || strings.Contains(r.NotStarted.Error(), "none") {
		t.Errorf("with a mistake in the file: %+v", r)
	}
	write(secret('b'), begin.Add(3*time.Second))
	verify('b')
}

func TestSecretsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "whsec_short", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)), strings.TrimPrefix(secret('a'), "whsec_")} {
		if _, err := parseSecrets(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{
		{URL: ""}, {URL: "example.com"}, {URL: "ftp://example.com"}, {URL: "https://"}, {URL: "https://a:b@example.com"}, {URL: "http://%zz"},
		{URL: "https://a", SecretFile: missing}, {URL: "https://a", SecretFile: empty}, {URL: "https://a", CAFile: missing}, {URL: "https://a", CAFile: empty},
	} {
		if _, err := New(o, 1); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestOnlyPublicAddressesAreConnectedTo(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "::1": false, "10.1.2.3": false, "192.168.0.1": false, "172.16.9.9": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "0.1.2.3": false, "255.255.255.255": false, "224.0.0.1": false, "fe80::1": false, "fc00::1": false, "ff02::1": false, "::": false,
		"::ffff:127.0.0.1": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "198.18.0.1": false, "192.0.2.1": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
	// A name that leads to such an address is refused when it has been resolved.
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was connected to") }))
	defer s.Close()
	task, err := New(Options{URL: strings.Replace(s.URL, "127.0.0.1", "localhost", 1), Timeout: time.Minute}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if r := task.Do(t.Context(), &worker.Message{}); r.NotStarted == nil || !strings.Contains(r.NotStarted.Error(), "127.0.0.1 is not a public address: --private allows it") {
		t.Errorf("%+v", r)
	}
}

func TestARequestWithoutAnAnswerFails(t *testing.T) {
	over := make(chan struct{})
	task := receiver(t, Options{Timeout: time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	if r := task.Do(t.Context(), &worker.Message{}); r.Failure != "no answer in time" {
		t.Errorf("%+v", r)
	}
	close(over)
	task = receiver(t, Options{}, nil)
	task.URL = "http://127.0.0.1:1/"
	if r := task.Do(t.Context(), &worker.Message{}); !strings.Contains(r.Failure, "refused") || strings.Contains(r.Failure, "Post") {
		t.Errorf("%+v", r)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if r := task.Do(gone, &worker.Message{}); r.Failure == "" {
		t.Errorf("%+v", r)
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "120": 2 * time.Minute, "-1": 0, "1.5": 0, "99999999": retryAfterMost, "99999999999999999999": 0,
		"Fri, 01 May 2026 12:00:30 GMT": 30 * time.Second, "Fri, 01 May 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
