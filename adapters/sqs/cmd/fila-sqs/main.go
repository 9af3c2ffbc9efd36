// Fila-sqs serves the API of Amazon SQS from queues of a Fila broker. fila-sqs --help describes its settings.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	sqs "github.com/faisca/fila/adapters/sqs"
)

const usage = `fila-sqs serves the API of Amazon SQS from queues of a Fila broker.

  fila-sqs                                               # on 127.0.0.1:9324, for a broker on 127.0.0.1:5555
  FILA_URL=fila://fila:5555 fila-sqs                    # of another host
  AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9324 your-program

It keeps nothing: run as many as you like, behind any load balancer. Without a file of access keys, requests are not
verified, and it listens on loopback addresses only. Each setting is a flag, or a variable of the environment.

`

// settings are what the environment and the flags say.
type settings struct {
	url, listen, admin, keys, public, region, account, cert, key string
	connections                                                  int
}

func main() {
	os.Exit(start(os.Args[1:], os.Stderr)) //nolint:forbidigo // the end of the process
}

// start runs a gateway until a signal ends it, and returns the exit code.
func start(args []string, out io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, args, out); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(out, "fila-sqs:", err)
		return 1
	}
	return 0
}

// parse returns the settings of the environment and the flags, which come first.
func parse(args []string, out io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("fila-sqs", flag.ContinueOnError)
	f.SetOutput(out)
	text := func(to *string, name, otherwise, help string) {
		variable := "FILA_SQS_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if name == "url" {
			variable = "FILA_URL"
		}
		if value, set := os.LookupEnv(variable); set {
			otherwise = value
		}
		f.StringVar(to, name, otherwise, help+" ("+variable+")")
	}
	text(&s.url, "url", "fila://127.0.0.1:5555", "`URL` of the broker: fila://[user:password@]host:port, filas:// with TLS (redis:// and rediss:// are the same); several nodes of a cluster, by their cluster.client_addr, with ?addr=host:port")
	text(&s.listen, "listen-addr", "127.0.0.1:9324", "`address` for clients of SQS")
	text(&s.admin, "admin-addr", "", "`address` of /health, /ready and /metrics; empty: none")
	text(&s.keys, "keys-file", "", "`file` with access keys: a JSON array of objects with access_key_id, secret_access_key, user and password, the last two of a user of the broker. It is read again when it changes")
	text(&s.public, "public-url", "", "`URL` that addresses of queues begin with; empty: what the client has asked")
	text(&s.region, "region", "us-east-1", "`region` in names of resources")
	text(&s.account, "account", "000000000000", "`account` of 12 digits, in addresses and names of resources")
	text(&s.cert, "tls-cert-file", "", "`file` of the certificate of the listener; empty: no TLS. It is read again when it changes")
	text(&s.key, "tls-key-file", "", "`file` of its key")
	f.IntVar(&s.connections, "connections", 1000, "`number` of connections to the broker at most, for each of its users: each receive that waits takes one")
	f.Usage = func() { fmt.Fprint(out, usage); f.PrintDefaults() }
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q, see --help", f.Arg(0))
	case (s.cert == "") != (s.key == ""):
		return nil, errors.New("tls-cert-file and tls-key-file go together")
	case s.connections < 1:
		return nil, errors.New("connections must be at least 1")
	}
	return s, nil
}

// broker returns how the broker of a URL is reached.
func broker(s *settings) (*redis.UniversalOptions, error) {
	address := s.url
	if rest, is := strings.CutPrefix(address, "fila"); is { // the schemes of Fila are those of Redis
		address = "redis" + rest
	}
	o, err := redis.ParseClusterURL(address) // it takes several addresses; one is not a cluster
	if err != nil {
		if u, is := errors.AsType[*url.Error](err); is {
			err = u.Err // without the URL, which has the password
		}
		return nil, fmt.Errorf("FILA_URL: %w", err)
	}
	return &redis.UniversalOptions{
		Addrs: o.Addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, IsClusterMode: len(o.Addrs) > 1,
		MaxRetries: -1, // a message that is sent twice is two messages
		PoolSize:   s.connections, ReadTimeout: sqs.BlockFor + 10*time.Second, ContextTimeoutEnabled: true,
	}, nil
}

// ballast is memory that is reserved and never written, so the system gives none for it. It counts as in use, and so garbage is
// collected after each 32 MiB that are allocated and not after each 4, which takes a sixth of the CPU time of a busy gateway.
const ballast = 32 << 20

func run(ctx context.Context, args []string, out io.Writer) error {
	reserved := make([]byte, ballast)
	defer runtime.KeepAlive(reserved)
	s, err := parse(args, out)
	if err != nil {
		return err
	}
	o, err := broker(s)
	if err != nil {
		return err
	}
	metrics := newMetrics()
	g, err := sqs.New(sqs.Config{
		Broker: o, KeysFile: s.keys, PublicURL: strings.TrimRight(s.public, "/"), Region: s.region, Account: s.account,
		Observe: metrics.observe, Failed: func(err error) { fmt.Fprintln(out, "fila-sqs:", err) },
	})
	if err != nil {
		return err
	}
	defer g.Close()
	l, err := listen(ctx, s)
	if err != nil {
		return err
	}
	server := g.Server()
	stops := []func(context.Context) error{server.ShutdownWithContext}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(l) }()
	if s.admin != "" {
		al, err := new(net.ListenConfig).Listen(ctx, "tcp", s.admin)
		if err != nil {
			return fmt.Errorf("admin-addr: %w", err)
		}
		operators := &http.Server{Handler: admin(g, metrics), ReadHeaderTimeout: 10 * time.Second}
		stops = append(stops, operators.Shutdown)
		go func() { ended <- operators.Serve(al) }()
	}
	fmt.Fprintf(out, "fila-sqs: ready on %s\n", l.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Receives that wait end within 20 seconds, the longest that a client may ask for.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
	defer cancel()
	var all []error
	for _, stop := range stops {
		all = append(all, stop(last))
	}
	return errors.Join(all...)
}

// listen returns the listener for clients, which is on a loopback address unless requests are verified.
func listen(ctx context.Context, s *settings) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return nil, fmt.Errorf("listen-addr: %w", err)
	}
	if at, is := l.Addr().(*net.TCPAddr); s.keys == "" && (!is || !at.IP.IsLoopback()) {
		_ = l.Close()
		return nil, fmt.Errorf("listen-addr: %s is no loopback address: requests there must be verified, name a file of access keys with FILA_SQS_KEYS_FILE", s.listen)
	}
	if s.cert == "" {
		return l, nil
	}
	c := &certificate{cert: s.cert, key: s.key}
	if _, err := c.get(nil); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}), nil
}

// admin serves what operators and orchestrators ask.
func admin(g *sqs.Gateway, m *metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if g.Ready(ctx) != nil {
			http.Error(w, "the broker does not answer", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// metrics are the figures of a gateway.
type metrics struct {
	registry *prometheus.Registry
	took     *prometheus.HistogramVec
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fila_sqs_request_seconds", Help: "Requests by action and outcome: ok, or the name of the error.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20},
	}, []string{"action", "code"})}
	m.registry.MustRegister(m.took)
	return m
}

func (m *metrics) observe(action, code string, took time.Duration) {
	m.took.WithLabelValues(action, code).Observe(took.Seconds())
}
